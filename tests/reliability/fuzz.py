"""Sends random and mutated messages to every RPC of a cell's servers.

An admin server and a model server of a cell get the messages. Attacks alternate
with quiet times, which shows the effect on other clients. Some random messages
are valid, for example a request to load another model. Their effects are
reverted in the quiet times.
"""

import asyncio
import collections
from collections.abc import Iterable, Sequence
import contextlib
import dataclasses
import random
import time

import grpc

from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc
from tests.chaos import processes
from tests.reliability import served as served_lib
from tests.reliability.clients import traffic as traffic_lib
from tests.reliability.messages import mutants
from tests.reliability.messages import rpcs
from tests.reliability.results import figures
from tests.reliability.results import meters

_PARAMS = served_lib.PARAMS
_MODEL = served_lib.MODEL
# Destructive calls may name this model. Its name is as long as _MODEL, so that
# it can replace it.
_VICTIM = processes.CELL + '/victim'
_STEP_SECS = 0.05
# The timeout of calls that wait for a change.
_CALL_SECS = 1.0
_IN_FLIGHT = 64
_WINDOW_SECS = 4.0
_WRONG = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN})
_DESTRUCTIVE = frozenset(
  f'/sax.{name}'
  for name in (
    'Admin/Publish',
    'Admin/Update',
    'Admin/Unpublish',
    'Modelet/Load',
    'Modelet/UpdateLoaded',
    'Modelet/Unload',
  )
)


@dataclasses.dataclass
class Result:
  """The result of a run.

  Attributes:
    methods: The number of RPCs that got messages.
    sent: The number of messages.
    codes: The number of answers by status.
    wrong: The answers that blame the server for a caller's fault.
    crashes: The processes that ended.
    grown: The growth of the memory of each process in MB, by its name.
    noticed: The figures of other clients.
  """

  methods: int = 0
  sent: int = 0
  codes: collections.Counter = dataclasses.field(
    default_factory=collections.Counter
  )
  wrong: list[str] = dataclasses.field(default_factory=list)
  crashes: list[str] = dataclasses.field(default_factory=list)
  grown: dict[str, float] = dataclasses.field(default_factory=dict)
  noticed: list[figures.Figure] = dataclasses.field(default_factory=list)


def _seeds(address: str) -> dict[str, Sequence]:
  model = admin_pb2.Model(
    model_id=_VICTIM,
    model_path=_PARAMS,
    checkpoint_path='/none',
    requested_num_replicas=1,
    overrides={'BATCH_SIZE': '4'},
  )
  ask = lm_pb2.GenerateRequest(model_key=_MODEL, text='1,2,3')
  ask.extra_inputs.items['per_example_max_decode_steps'] = 2
  seeds = (
    admin_pb2.PublishRequest(model=model),
    admin_pb2.UpdateRequest(model=model),
    admin_pb2.UnpublishRequest(model_id=_VICTIM),
    admin_pb2.ListRequest(model_id=_MODEL),
    admin_pb2.StatsRequest(model_id=_MODEL),
    admin_pb2.WatchLocRequest(model_id=_MODEL),
    admin_pb2.WaitForReadyRequest(model_id=_MODEL, num_replicas=1),
    admin_pb2.JoinRequest(
      address=address,
      model_server=admin_pb2.ModelServer(servable_model_paths=['p.A']),
    ),
    modelet_pb2.LoadRequest(
      model_key=_VICTIM, model_path=_PARAMS, checkpoint_path='/none'
    ),
    modelet_pb2.UnloadRequest(model_key=_VICTIM),
    modelet_pb2.UpdateLoadedRequest(model_key=_VICTIM, checkpoint_path='/n'),
    modelet_pb2.ExportRequest(
      model_key=_MODEL, method_names=['lm.score'], export_path='/none/here'
    ),
    modelet_pb2.SaveRequest(model_key=_MODEL, checkpoint_path='/none/here'),
    modelet_pb2.GetStatusRequest(
      include_failure_reasons=True, include_method_stats=True
    ),
    ask,
    lm_pb2.ScoreRequest(model_key=_MODEL, prefix='1,2', suffix=['3']),
    lm_pb2.EmbedRequest(model_key=_MODEL, text='1,2'),
    lm_pb2.GradientRequest(model_key=_MODEL, prefix='1', suffix='2'),
    completion_pb2.CompleteRequest(
      model_key=_MODEL,
      token_ids=completion_pb2.TokenIds(ids=[1, 2, 3]),
      max_tokens=2,
      logprobs=1,
      stream=True,
    ),
    completion_pb2.TokenizeRequest(model_key=_MODEL, text='1,2'),
    completion_pb2.DetokenizeRequest(model_key=_MODEL, ids=[1, 2]),
    completion_pb2.DescribeRequest(model_key=_MODEL),
  )
  return {seed.DESCRIPTOR.full_name: (seed,) for seed in seeds}


class _Attack:
  """An attack that sends messages to the methods of both servers in turn."""

  def __init__(self, addresses: Sequence[str], seed: int, result: Result):
    self._result = result
    # No server listens on the discard port.
    self._mutator = mutants.Mutator(
      random.Random(seed),
      (_MODEL, _VICTIM, processes.CELL, _PARAMS, '127.0.0.1:9'),
      _seeds('127.0.0.1:9'),
    )
    self._targets = [
      (address, rpc) for address in addresses for rpc in rpcs.list_rpcs(address)
    ]
    result.methods = len(self._targets)

  async def send(self, count: int, rate: float, until: float) -> None:
    """Sends `count` messages, or as many as possible until the time `until`."""
    room = asyncio.Semaphore(_IN_FLIGHT)
    addresses = {address for address, _ in self._targets}
    async with contextlib.AsyncExitStack() as stack:
      channels = {
        address: await stack.enter_async_context(grpc_aio.channel(address))
        for address in addresses
      }
      calls: set[asyncio.Task[None]] = set()
      due = time.monotonic()
      for _ in range(count):
        await room.acquire()
        if time.monotonic() > until:
          break
        address, rpc = self._targets[self._result.sent % len(self._targets)]
        self._result.sent += 1
        call = asyncio.create_task(self._call(channels[address], rpc, room))
        calls.add(call)
        call.add_done_callback(calls.discard)
        due = max(due + 1 / rate, time.monotonic() - 0.1)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
      await asyncio.gather(*calls)

  async def _call(
    self, channel: grpc.aio.Channel, rpc: rpcs.Rpc, room: asyncio.Semaphore
  ) -> None:
    data = self._mutator.request(rpc.request)
    if rpc.path in _DESTRUCTIVE:
      data = data.replace(_MODEL.encode(), _VICTIM.encode())
    try:
      code, details = await rpcs.invoke(channel, rpc, data, _CALL_SECS)
    finally:
      room.release()
    self._result.codes[code.name] += 1
    if code in _WRONG:
      self._result.wrong.append(f'{rpc.path} {code.name}: {details}: {data!r}')


def _undo(cell: processes.Cell, server: str) -> None:
  """Removes all models except the one that other clients call."""
  for model_id in cell.models():
    if model_id != _MODEL:
      # The server may be gone meanwhile.
      with contextlib.suppress(grpc.RpcError):
        cell.call('Unpublish', admin_pb2.UnpublishRequest(model_id=model_id))
  with grpc_util.channel(server) as channel:
    stub = modelet_pb2_grpc.ModeletStub(channel)
    status = stub.GetStatus(
      modelet_pb2.GetStatusRequest(), timeout=processes.PATIENCE
    )
    for model in status.models:
      if model.model_key != _MODEL:
        with contextlib.suppress(grpc.RpcError):
          stub.Unload(modelet_pb2.UnloadRequest(model_key=model.model_key))


def run(
  directory: str,
  messages: int,
  rate: float = 400.0,
  window_secs: float = _WINDOW_SECS,
  ratio: float | None = 1.5,
  seed: int = 0,
) -> Result:
  """Sends messages in windows of attack, each after a window of quiet.

  Args:
    directory: An empty directory.
    messages: The number of messages.
    rate: The limit of messages per second.
    window_secs: The duration of each window.
    ratio: The limit of the growth of others' p99; None if the run is too short.
    seed: The seed of the messages.
  """
  result = Result()
  overrides = {'MAX_DECODE_STEPS': '4', 'MIN_DECODE_STEPS': '1'}
  with served_lib.start(
    directory,
    [f'--step_secs={_STEP_SECS}'],
    # Answers are so short that valid requests do not fill the slots.
    overrides,
  ) as served:
    cell, admin, (server,) = served.cell, served.admin, served.servers
    attacked = {'admin server': admin, 'model server': server}
    attack = _Attack([admin.address, server.address], seed, result)
    # The first call of each kind imports modules and allocates memory.
    asyncio.run(attack.send(8 * result.methods, rate, time.monotonic() + 60))
    _undo(cell, server.address)
    before = {k: meters.memory(p.popen.pid) for k, p in attacked.items()}
    result.sent = 0
    flags = served.client_flags
    with (
      traffic_lib.Traffic(cell.path, 'generate', *flags, '--rate=25') as asks,
      traffic_lib.Traffic(
        cell.path, 'list', *flags, '--rate=25', '--what=list'
      ) as lists,
    ):
      windows = traffic_lib.Windows()
      while result.sent < messages and all(
        p.popen.poll() is None for p in attacked.values()
      ):
        begin = time.monotonic()
        traffic_lib.sleep_until(begin + window_secs)
        windows.quiet.append((begin, time.monotonic()))
        begin = time.monotonic()
        left = messages - result.sent
        asyncio.run(attack.send(left, rate, begin + window_secs))
        windows.attacked.append((begin, time.monotonic()))
        _undo(cell, server.address)
      time.sleep(1.0)  # The last requests get their answers.
      result.crashes = _ended(attacked.items())
      for name, process in attacked.items():
        if name not in result.crashes:
          grown = meters.memory(process.popen.pid) - before[name]
          result.grown[name] = grown
      for name, client in (('Generate', asks), ('List', lists)):
        result.noticed += traffic_lib.compare(
          name, client.calls(), windows, ratio
        )
  return result


def _ended(attacked: Iterable[tuple[str, processes.Process]]) -> list[str]:
  return [name for name, p in attacked if p.popen.poll() is not None]


def measure(directory: str, messages: int, **how) -> list[figures.Figure]:
  """Returns the figures of the table's row; see `run`."""
  result = run(directory, messages, **how)
  for text in result.wrong[:20]:
    print(text[:400])
  print(dict(result.codes))
  return [
    figures.Figure('messages', result.sent, least=messages),
    figures.Figure('RPCs of both servers', result.methods),
    figures.none_of('servers that ended', result.crashes),
    figures.none_of('INTERNAL or UNKNOWN', result.wrong),
    *(
      figures.Figure(f'memory of the {name} grew by', grown, 'MB', most=20)
      for name, grown in result.grown.items()
    ),
    *result.noticed,
  ]
