"""Sends requests beyond every limit, and requests that are too late."""

import asyncio
from collections.abc import Iterator, Sequence
import dataclasses
import math
import pathlib
import time
from typing import Any
import urllib.request

from google.protobuf import message as message_lib
import grpc
from prometheus_client import parser

from saxml_ext.client import sax_aio
from saxml_ext.common import grpc_aio
from saxml_ext.common import net
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import lm_pb2
from tests.chaos import processes
from tests.reliability import served as served_lib
from tests.reliability.clients import raw_http2
from tests.reliability.clients import traffic as traffic_lib
from tests.reliability.messages import rpcs
from tests.reliability.results import figures

_STEP_SECS = 0.1
_SLOTS = 4
_TOKENS = 100
_OVERRIDES = {
  'BATCH_SIZE': str(_SLOTS),
  'MAX_LIVE_BATCHES': '512',
  'MAX_DECODE_STEPS': str(_TOKENS),
  'MIN_DECODE_STEPS': '1',
  'FAIL_ON_INPUT_TRUNCATION': 'true',
}
_REFUSALS = frozenset(
  {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    # This is the answer to parameters for which the model has no method.
    grpc.StatusCode.UNIMPLEMENTED,
  }
)
_LM = '/sax.server.lm.LMService/'
_COMPLETE = '/sax.completion.Completion/Complete'
_TRIES = 5
_MILLION = 10**6
_HUGE = 64 * 2**20
_CALL_SECS = 20.0
# The deadline of requests that must expire in the queue. The slots are in use
# for longer.
_DEADLINE_SECS = 5.0
_WITHIN_SECS = 0.05


@dataclasses.dataclass(frozen=True)
class Refusal:
  """The answer to one request.

  Attributes:
    name: The fault of the request.
    code: The status code of the answer.
    secs: The time until the answer, the minimum of several tries.
  """

  name: str
  code: grpc.StatusCode
  secs: float


def _generate(text: str, **items: float) -> lm_pb2.GenerateRequest:
  request = lm_pb2.GenerateRequest(model_key=served_lib.MODEL, text=text)
  request.extra_inputs.items.update(items)
  return request


def _score(prefix: str, *suffix: str) -> lm_pb2.ScoreRequest:
  return lm_pb2.ScoreRequest(
    model_key=served_lib.MODEL, prefix=prefix, suffix=suffix
  )


def _complete(**fields: Any) -> completion_pb2.CompleteRequest:
  fields.setdefault('max_tokens', 1)
  fields.setdefault('token_ids', completion_pb2.TokenIds(ids=[1, 2]))
  return completion_pb2.CompleteRequest(model_key=served_lib.MODEL, **fields)


def _generate_requests() -> Iterator[tuple[str, str, message_lib.Message]]:
  steps = 'per_example_max_decode_steps'
  for value in (-1, 0, 1.5, 101, 1e30, math.nan, math.inf):
    yield f'{steps}={value}', 'Generate', _generate('1,2', **{steps: value})
  yield 'an unknown extra input', 'Generate', _generate('1,2', unknown=1)
  many = _generate('1,2', **{f'unknown{i}': 1 for i in range(10_000)})
  yield '10,000 unknown extra inputs', 'Generate', many
  tensor = _generate('1,2')
  tensor.extra_inputs.tensors[steps].values[:] = [1.0] * _MILLION
  yield 'a tensor of a million values', 'Generate', tensor
  for count in (513, 10_000, _MILLION):
    text = ','.join(['7'] * count)
    yield f'a prompt of {count:,} ids', 'Generate', _generate(text)
    yield f'a prefix of {count:,} ids', 'Score', _score(text, '1')
    yield f'a suffix of {count:,} ids', 'Score', _score('1', text)
  yield 'a prompt of no ids', 'Generate', _generate('')
  yield 'an id out of the vocabulary', 'Generate', _generate('1,99999999')
  yield 'no number', 'Generate', _generate('1,x')
  yield 'no suffix', 'Score', _score('1')


def _completion_requests() -> Iterator[tuple[str, message_lib.Message]]:
  most = 2**31 - 1
  for name, values in {
    'max_tokens': (-1, 0, 101, most),
    'min_tokens': (-1, most),
    'temperature': (-1, math.nan, math.inf),
    'top_k': (-1, most),
    'top_p': (0, -1, 2, math.nan),
    'n': (-1, 0, most),
    'num_beams': (-1, 0, most),
    'length_penalty': (math.nan, math.inf),
    'logprobs': (-1, most),
  }.items():
    for value in values:
      yield f'{name}={value}', _complete(**{name: value})
  yield '10,000 stop texts', _complete(stop=['x'] * 10_000)
  yield 'a stop text of 1 MB', _complete(stop=['x' * _MILLION])
  yield '100,000 stop ids', _complete(stop_token_ids=[1] * 100_000)
  yield 'a stop id out of the vocabulary', _complete(stop_token_ids=[most])
  ids = completion_pb2.TokenIds(ids=[7] * _MILLION)
  yield 'a prompt of a million ids', _complete(token_ids=ids)
  outside = completion_pb2.TokenIds(ids=[most])
  yield 'an id out of the vocabulary', _complete(token_ids=outside)


def _cases(offered: frozenset[str]) -> Iterator[tuple[str, str, bytes]]:
  """Yields the fault, path and bytes of each request."""
  for name, method, request in _generate_requests():
    yield f'{method}: {name}', _LM + method, request.SerializeToString()
  if _COMPLETE in offered:
    for name, request in _completion_requests():
      yield f'Complete: {name}', _COMPLETE, request.SerializeToString()


def _huge() -> Iterator[tuple[str, str, bytes]]:
  for size in (_HUGE, 2 * _HUGE):
    data = _generate('7,' * (size // 2)).SerializeToString()
    yield f'a message of {size >> 20} MiB', _LM + 'Generate', data


async def _refusals(
  address: str, cases: Sequence[tuple[str, str, bytes]]
) -> list[Refusal]:
  """Sends each request several times."""
  channel = grpc.aio.insecure_channel(
    address, options=(('grpc.max_send_message_length', -1),)
  )
  refusals = []
  async with channel:
    methods = {rpc.path: rpc for rpc in rpcs.list_rpcs(address)}
    for name, path, data in cases:
      code, secs = await _fastest(channel, methods[path], data)
      refusals.append(Refusal(name, code, secs))
  return refusals


async def _fastest(
  channel: grpc.aio.Channel, rpc: rpcs.Rpc, data: bytes
) -> tuple[grpc.StatusCode, float]:
  secs = math.inf
  for _ in range(_TRIES):
    begin = time.monotonic()
    code, _ = await rpcs.invoke(channel, rpc, data, _CALL_SECS)
    secs = min(secs, time.monotonic() - begin)
  return code, secs


async def _expire(root: str, count: int) -> list[str]:
  """Fills the slots, and sends requests that cannot start in time.

  Returns:
    The status codes of the late requests.
  """
  sax_aio.SetRoot(root)
  model = sax_aio.Model(served_lib.MODEL).LM()
  await model.Generate('1,1')  # The first call has additional overhead.

  async def late(number: int) -> str:
    options = sax_aio.ModelOptions(_DEADLINE_SECS)
    try:
      await model.Generate(f'{number},5', options)
    except sax_aio.SaxError as e:
      return e.code.name
    return 'OK'

  async with asyncio.TaskGroup() as group:
    for _ in range(_SLOTS):
      group.create_task(model.Generate('1,2'))
    await asyncio.sleep(0.2)
    calls = [group.create_task(late(n)) for n in range(count)]
  return [call.result() for call in calls]


def measure(
  directory: str, late: int = 1000, strict: bool = True
) -> list[figures.Figure]:
  """Returns the figures of the table's row.

  Args:
    directory: An empty directory.
    late: The number of requests whose deadline is shorter than the queue.
    strict: True if times count; False if the machine may be too busy for them.
  """
  notes = pathlib.Path(directory) / 'notes'
  port = net.pick_free_port()
  flags = [f'--step_secs={_STEP_SECS}', f'--notes={notes}']
  flags.append(f'--http_port={port}')
  with served_lib.start(directory, flags, _OVERRIDES) as served:
    address = served.servers[0].address
    offered = frozenset(rpc.path for rpc in rpcs.list_rpcs(address))
    cases, huge = list(_cases(offered)), list(_huge())
    flags = [*served.client_flags, '--rate=20']
    with traffic_lib.Traffic(served.cell.path, 'others', *flags) as traffic:
      begin = time.monotonic()
      refused = asyncio.run(_refusals(address, cases))
      large = asyncio.run(_refusals(address, huge))
      waited = [
        raw_http2.secs_until_refused(address, _LM + 'Generate', _HUGE + 1)
        for _ in range(_TRIES)
      ]
      ended = time.monotonic()
    codes = asyncio.run(_expire(served.cell.root, late))
    asyncio.run(_answers(address))
    counted = _counted(port)
    admitted = notes.read_text().splitlines()
    calls = traffic_lib.within(traffic.calls(), [(begin, ended)])
  began = [line for line in admitted if line.endswith(',5')]
  wrong = [r for r in refused + large if r.code not in _REFUSALS]
  for refusal in wrong + [r for r in refused if r.secs > _WITHIN_SECS]:
    print(
      f'{refusal.name}: {refusal.code.name} after {1e3 * refusal.secs:.0f} ms'
    )
  within = 1e3 * _WITHIN_SECS if strict else None
  return [
    figures.Figure('requests beyond a limit', len(refused)),
    figures.none_of('of those not refused', wrong),
    figures.Figure(
      'slowest refusal',
      1e3 * max(r.secs for r in refused),
      'ms',
      most=within,
    ),
    figures.Figure(
      'slowest refusal of 64 MiB, from its announcement',
      1e3 * max(waited),
      'ms',
      most=within,
    ),
    figures.none_of(
      "others' calls that failed meanwhile",
      [c for c in calls if c.code != 'OK'],
    ),
    figures.Figure('requests that came too late', len(codes), least=late),
    figures.all_of(
      'of those ended as DEADLINE_EXCEEDED',
      sum(code == 'DEADLINE_EXCEEDED' for code in codes),
      late,
    ),
    figures.none_of('of those reached the device', began),
    figures.Figure('of those counted by metrics', counted, least=late),
  ]


def _counted(port: int) -> int:
  """Returns the server's count of requests that expired or were cancelled.

  At a deadline, either the server's clock or the hang-up of the client comes
  first.
  """
  url = f'http://127.0.0.1:{port}/metrics'
  with urllib.request.urlopen(url, timeout=processes.PATIENCE) as response:
    text = response.read().decode()
  counts = {'DEADLINE_EXCEEDED': 0.0, 'CANCELLED': 0.0}
  for family in parser.text_string_to_metric_families(text):
    for sample in family.samples:
      if sample.name == 'sax_requests_total':
        code = sample.labels['code']
        if code in counts:
          counts[code] += sample.value
  return int(sum(counts.values()))


async def _answers(address: str) -> None:
  """Raises unless the server answers a request."""
  async with grpc_aio.channel(address) as channel:
    request = _generate('1,2', per_example_max_decode_steps=1)
    call = channel.unary_unary(_LM + 'Generate')
    await call(request.SerializeToString(), timeout=processes.PATIENCE)
