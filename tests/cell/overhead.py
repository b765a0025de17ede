"""Measures the overhead of a request: latency, rate and CPU time.

A cell whose engine answers at once is compared with a bare gRPC server with
messages of the same size. Both get their requests in turn.
"""

from collections.abc import Mapping, Sequence
from concurrent import futures
import dataclasses
import os
import statistics
import tempfile
import threading
import time
from typing import Protocol

import grpc

from saxml_ext.client import sax
from saxml_ext.common import grpc_util
from saxml_ext.common import net
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc
from serve import children
from serve import local_cell
from serve import programs
from serve import progress as progress_lib
from tests.cell import cpu
from tests.cell import instant_runner

CELL = 'cell'
ECHO = 'bare gRPC'

INSTANT_SERVER = 'tests/cell/instant_server'
_ECHO_SERVER = 'tests/cell/echo_server'
PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
_WARM_UP = 200
_TIMEOUT_SECS = 60.0


@dataclasses.dataclass(frozen=True)
class Load:
  """The number of requests to send.

  Attributes:
    rounds: The number of rounds of each measurement, both servers in turn.
    sequential: The number of requests per round that are sent one by one.
    burst: The number of requests per round that are sent together.
    concurrencies: The limits of unanswered requests; each limit is measured.
  """

  rounds: int
  sequential: int
  burst: int
  concurrencies: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Burst:
  """The result of many requests at once.

  Attributes:
    requests_per_second: The rate of the answers.
    server_us: The CPU time of the server per request, in microseconds.
    client_us: The CPU time of the client per request, in microseconds.
  """

  requests_per_second: float
  server_us: float
  client_us: float


@dataclasses.dataclass(frozen=True)
class Figures:
  """The figures of one server, as medians over the rounds.

  Attributes:
    p50_ms, p90_ms, p99_ms: The latency of a single request.
    bursts: The results of bursts, by concurrency.
    rounds: The number of rounds.
  """

  p50_ms: float
  p90_ms: float
  p99_ms: float
  bursts: Mapping[int, Burst]
  rounds: int


class Target(Protocol):
  """A server and its client."""

  def ask(self, prompt: str) -> str:
    """Returns the best answer to a prompt."""

  def ask_later(self, prompt: str) -> futures.Future | grpc.Future:
    """Sends a prompt; `read` extracts the answer from the future's result."""

  def read(self, result: object) -> str:
    """Returns the best answer in a future's result."""


class _Cell:
  """The model of a cell, through the client of users."""

  def __init__(self, model_id: str):
    self._lm = sax.Model(model_id).LM()
    self._options = sax.ModelOptions(_TIMEOUT_SECS)

  def ask(self, prompt: str) -> str:
    return self.read(self._lm.Generate(prompt, self._options))

  def ask_later(self, prompt: str) -> futures.Future:
    return self._lm.GenerateAsync(prompt, self._options)

  def read(self, result: Sequence[tuple[str, float]]) -> str:
    return result[0][0]


class _Echo:
  """The bare server, through a bare stub."""

  def __init__(self, address: str):
    self._generate = lm_pb2_grpc.LMServiceStub(
      grpc_util.channel(address)
    ).Generate

  def ask(self, prompt: str) -> str:
    return self.read(self._generate(_request(prompt), timeout=_TIMEOUT_SECS))

  def ask_later(self, prompt: str) -> grpc.Future:
    return self._generate.future(_request(prompt), timeout=_TIMEOUT_SECS)

  def read(self, result: lm_pb2.GenerateResponse) -> str:
    return result.texts[0].text


def _request(prompt: str) -> lm_pb2.GenerateRequest:
  return lm_pb2.GenerateRequest(model_key='/sax/local/instant', text=prompt)


def measure(
  prompts: Sequence[Sequence[int]],
  load: Load,
  log_dir: str,
  progress: progress_lib.Progress,
) -> dict[str, Figures]:
  """Starts both servers and sends requests to them in turn.

  Args:
    prompts: The token ids of each prompt; the answer is the first of them.
    load: The number of requests to send.
    log_dir: The directory for the logs, one per process.
    progress: The display of the progress.

  Returns:
    The figures of `CELL` and `ECHO`.

  Raises:
    errors.HarnessError, SaxError: A server failed.
    ValueError: An answer is wrong.
  """
  texts = [','.join(map(str, ids)) for ids in prompts]
  answers = [
    ','.join(map(str, ids[: instant_runner.ANSWER_TOKENS])) for ids in prompts
  ]
  with (
    tempfile.TemporaryDirectory(prefix='sax_bench_') as work_dir,
    children.Children() as group,
  ):
    cell = local_cell.LocalCell(
      group, work_dir, log_dir, None, progress, server=INSTANT_SERVER
    )
    cell.start()
    model_id = cell.publish(
      local_cell.Model('instant', PARAMS, work_dir, overrides={})
    )
    echo, address = start_echo(group, answers[0], log_dir)
    progress.stage(f'{load.rounds} rounds of requests to an instant engine')
    return _measure(
      {
        CELL: _Meter(_Cell(model_id), cell.model_server, texts, answers),
        ECHO: _Meter(_Echo(address), echo, texts, answers[:1]),
      },
      load,
      progress,
    )


def start_echo(
  group: children.Children, answer: str, log_dir: str
) -> tuple[children.Child, str]:
  """Starts the bare server; returns its process and its address."""
  port = net.pick_free_port()
  child = group.start(
    'echo server',
    programs.command(_ECHO_SERVER, {'port': port, 'answer': answer}),
    os.path.join(log_dir, 'echo_server.log'),
  )
  address = f'127.0.0.1:{port}'
  wait_until_connected(child, address)
  return child, address


def wait_until_connected(child: children.Child, address: str) -> None:
  """Waits until a new server accepts connections.

  Raises:
    children.ChildError: It accepts none within a minute.
  """
  with grpc_util.channel(address) as channel:
    try:
      grpc.channel_ready_future(channel).result(_TIMEOUT_SECS)
    except grpc.FutureTimeoutError:
      raise child.error() from None


class _Meter:
  """A meter that sends requests to one server and measures them."""

  def __init__(
    self,
    target: Target,
    server: children.Child,
    texts: Sequence[str],
    answers: Sequence[str],
  ):
    self._target = target
    self._server = server
    self._texts = texts
    self._answers = answers

  def sequential(self, count: int) -> list[float]:
    """Returns the sorted seconds of `count` requests, sent one by one."""
    seconds = []
    for i in range(count):
      begin = time.perf_counter()
      answer = self._target.ask(self._texts[i % len(self._texts)])
      seconds.append(time.perf_counter() - begin)
      self._check(i, answer)
    return sorted(seconds)

  def burst(self, count: int, concurrency: int) -> Burst:
    """Sends `count` requests, with at most `concurrency` unanswered ones."""
    free = threading.Semaphore(concurrency)
    wrong: list[Exception] = []

    def done(i: int, future: futures.Future | grpc.Future) -> None:
      try:
        self._check(i, self._target.read(future.result()))
      except Exception as e:  # pylint: disable=broad-exception-caught
        wrong.append(e)  # The waiting thread raises it below.
      free.release()

    server, client = cpu.seconds(self._server), time.process_time()
    begin = time.perf_counter()
    for i in range(count):
      free.acquire()
      future = self._target.ask_later(self._texts[i % len(self._texts)])
      future.add_done_callback(lambda f, i=i: done(i, f))
    for _ in range(concurrency):
      free.acquire()
    wall = time.perf_counter() - begin
    if wrong:
      raise wrong[0]
    client = time.process_time() - client
    server = cpu.seconds(self._server) - server
    return Burst(count / wall, 1e6 * server / count, 1e6 * client / count)

  def _check(self, i: int, answer: str) -> None:
    expected = self._answers[i % len(self._answers)]
    if answer != expected:
      raise ValueError(f'request {i} got {answer!r} instead of {expected!r}')


def _measure(
  meters: Mapping[str, _Meter], load: Load, progress: progress_lib.Progress
) -> dict[str, Figures]:
  for meter in meters.values():
    meter.sequential(_WARM_UP)
    meter.burst(_WARM_UP, load.concurrencies[0])
  alone = {name: [] for name in meters}
  together = {name: {c: [] for c in load.concurrencies} for name in meters}
  with progress.bar('instant engine') as bar:
    for done in range(load.rounds):
      bar.update(done, load.rounds, 'rounds')
      for name, meter in meters.items():
        alone[name].append(meter.sequential(load.sequential))
      for concurrency in load.concurrencies:
        for name, meter in meters.items():
          burst = meter.burst(load.burst, concurrency)
          together[name][concurrency].append(burst)
  return {name: _figures(alone[name], together[name]) for name in meters}


def _figures(
  alone: Sequence[Sequence[float]], together: Mapping[int, Sequence[Burst]]
) -> Figures:
  """Returns medians; `alone` has sorted seconds, [rounds][requests]."""

  def percentile(part: float) -> float:
    return 1e3 * statistics.median(s[int(part * len(s))] for s in alone)

  return Figures(
    p50_ms=percentile(0.50),
    p90_ms=percentile(0.90),
    p99_ms=percentile(0.99),
    bursts={c: _median_burst(bursts) for c, bursts in together.items()},
    rounds=len(alone),
  )


def _median_burst(bursts: Sequence[Burst]) -> Burst:
  return Burst(
    *(
      statistics.median(getattr(burst, field.name) for burst in bursts)
      for field in dataclasses.fields(Burst)
    )
  )
