"""Tests slowly read streams, half-open connections and cancelled calls."""

import asyncio
from collections.abc import Iterator
import contextlib
import dataclasses
import pathlib
import socket
import time

from saxml_ext.client import sax_aio
from tests.reliability import served as served_lib
from tests.reliability.clients import raw_http2
from tests.reliability.clients import traffic as traffic_lib
from tests.reliability.results import figures
from tests.reliability.results import meters

_READER = 'tests.reliability.clients.slow_reader'
# The number of tokens in other clients' answers.
_TOKENS = 3
# The beginning of a TLS connection (RFC 8446, 4.1.2). The header announces 512
# bytes, and a few of them follow.
_HALF_TLS = b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' + bytes(20)
_METHOD = '/sax.server.lm.LMService/Generate'
_HALVES = (
  b'',
  raw_http2.PREFACE[:10],
  raw_http2.PREFACE,
  raw_http2.PREFACE + raw_http2.settings()[:5],
  raw_http2.PREFACE + raw_http2.settings() + raw_http2.headers(_METHOD)[:20],
  raw_http2.announce(_METHOD, 1000),
  _HALF_TLS,
)


@dataclasses.dataclass(frozen=True)
class Plan:
  """The numbers and the durations.

  Attributes:
    step_secs: The duration of a step of the engine.
    streams: The number of streams that are read slowly.
    halves: The number of connections that are left half open.
    rounds: The number of windows of quiet, and of attack.
    window_secs: The duration of each window.
    cancelled: The number of calls that are cancelled.
  """

  step_secs: float = 0.1
  streams: int = 200
  halves: int = 100
  rounds: int = 8
  window_secs: float = 15.0
  cancelled: int = 20


SHORT = Plan(step_secs=0.05, streams=60, rounds=2, window_secs=3.0, cancelled=3)


def measure(
  directory: str, plan: Plan = Plan(), strict: bool = True
) -> list[figures.Figure]:
  """Returns the figures of the table's row.

  Args:
    directory: An empty directory.
    plan: The numbers and the durations.
    strict: True if times count; False if the machine may be too busy for them.
  """
  notes = pathlib.Path(directory) / 'notes'
  flags = [f'--step_secs={plan.step_secs}', f'--notes={notes}']
  overrides = {
    # There are enough slots, so the streams take none from other clients.
    'BATCH_SIZE': str(plan.streams + 56),
    'MAX_DECODE_STEPS': '1000',
    'MIN_DECODE_STEPS': '1',
    'EXTRA_INPUTS': '{"per_example_max_decode_steps": 1000}',
    'ENABLE_GENERATE_STREAM': 'true',
  }
  with served_lib.start(directory, flags, overrides) as served:
    steps = asyncio.run(_cancel(served, notes, plan))
    results = _read_slowly(served, plan, strict)
  return [
    *results,
    figures.Figure('calls given up', len(steps), least=plan.cancelled),
    figures.Figure(
      'steps begun before their slots were free, at most',
      max(steps),
      most=1 if strict else None,
    ),
  ]


def _read_slowly(
  served: served_lib.Served, plan: Plan, strict: bool
) -> list[figures.Figure]:
  server = served.servers[0]
  windows = traffic_lib.Windows()
  before = meters.memory(server.popen.pid)
  most = before
  flags = [*served.client_flags, '--rate=10', f'--tokens={_TOKENS}']
  with (
    traffic_lib.Traffic(served.cell.path, 'others', *flags) as traffic,
    _readers(served, plan) as readers,
  ):
    for _ in range(plan.rounds):
      begin = time.monotonic()
      time.sleep(plan.window_secs)
      windows.quiet.append((begin, time.monotonic()))
      with contextlib.ExitStack() as stack:
        for number in range(plan.halves):
          stack.enter_context(_half(server.address, number))
        _tell(readers, 'go')
        begin = time.monotonic()
        traffic_lib.sleep_until(begin + plan.window_secs)
        most = max(most, meters.memory(server.popen.pid))
        windows.attacked.append((begin, time.monotonic()))
        _tell(readers, 'stop')
      time.sleep(1.0)  # The slots become free.
    calls = traffic.calls()
  return [
    figures.Figure('streams hardly read', plan.streams),
    figures.Figure('connections half made', plan.halves),
    *traffic_lib.compare('Generate', calls, windows, 1.2 if strict else None),
    figures.Figure(
      'buffered per stream', (most - before) / plan.streams, 'MB', most=1
    ),
  ]


@contextlib.contextmanager
def _readers(served: served_lib.Served, plan: Plan) -> Iterator:
  flags = [*served.client_flags, f'--count={plan.streams}']
  with (served.cell.path / 'readers.log').open('wb') as log:
    process = traffic_lib.start(_READER, flags, log)
    try:
      yield process
    finally:
      traffic_lib.end(process, 10.0)


def _tell(process, command: str) -> None:
  process.stdin.write(command + '\n')
  process.stdin.flush()
  if process.stdout.readline() != 'done\n':
    raise RuntimeError('the readers have ended')


@contextlib.contextmanager
def _half(address: str, number: int) -> Iterator[None]:
  """Opens a connection in one of several ways and leaves it half open."""
  host, _, port = address.rpartition(':')
  with socket.create_connection((host.strip('[]'), int(port))) as peer:
    peer.sendall(_HALVES[number % len(_HALVES)])
    yield


async def _cancel(
  served: served_lib.Served, notes: pathlib.Path, plan: Plan
) -> list[int]:
  """Cancels calls, with and without streams in turn.

  Returns:
    For each call, the number of steps that the engine started after the
    cancellation and before the slot was free.
  """
  sax_aio.SetRoot(served.cell.root)
  model = sax_aio.Model(served_lib.MODEL).LM()
  options = sax_aio.ModelOptions(60.0)

  async def stream() -> None:
    responses = model.GenerateStream('1,2', options)
    async with contextlib.aclosing(responses):
      async for _ in responses:
        pass

  counts = []
  for number in range(plan.cancelled):
    call = asyncio.create_task(
      stream() if number % 2 else model.Generate('1,2', options)
    )
    await asyncio.sleep(5.5 * plan.step_secs)
    call.cancel()
    moment = time.monotonic()
    with contextlib.suppress(asyncio.CancelledError):
      await call
    counts.append(await _steps_after(notes, moment))
  return counts


async def _steps_after(notes: pathlib.Path, moment: float) -> int:
  """Returns the number of steps from a time until the next release."""
  async with asyncio.timeout(30):
    while True:
      steps = 0
      for line in notes.read_text().split('\n')[:-1]:
        at, what = line.split(' ', 1)
        if float(at) >= moment:
          if what == 'release':
            return steps
          steps += what == 'step'
      await asyncio.sleep(0.05)
