"""Several times as many requests over HTTP as a cell can answer.

    ./bazelw run //tests/gateway:overload -- --secs=60

A real cell, whose engine takes a fixed time for each step, is asked through the
gateway: first for a little more than it can answer, which measures how much
that is, then for --times that. Nothing is tried twice.
"""

import asyncio
from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags
import psutil

from tests.chaos import processes
from tests.reliability import served as served_lib

_SECS = flags.DEFINE_float('secs', 60.0, 'How long too much is asked.')
_TIMES = flags.DEFINE_float('times', 5.0, 'How much too much.')

_STEP_SECS, _SLOTS, _TOKENS = 0.1, 16, 4
_OVERRIDES = {
  'BATCH_SIZE': str(_SLOTS),
  'MAX_LIVE_BATCHES': '4',
  'MAX_DECODE_STEPS': str(_TOKENS),
  'MIN_DECODE_STEPS': '1',
}
# Requests a second that the engine could answer at best.
_THEORY = _SLOTS / (_TOKENS * _STEP_SECS)
_BODY = json.dumps({'prompt': [1, 2, 3], 'max_tokens': _TOKENS}).encode()
_REQUEST = (
  b'POST /v1/completions HTTP/1.1\r\nhost: gateway\r\n'
  b'content-type: application/json\r\n'
  b'content-length: %d\r\n\r\n%s' % (len(_BODY), _BODY)
)
_LENGTH = re.compile(rb'content-length: (\d+)', re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Answer:
  """What came of a request, and when on the monotonic clock."""

  status: int
  has_hint: bool
  begin: float
  end: float


class Clients:
  """Asks at a given rate, whatever comes of it."""

  def __init__(self, port: int):
    self.answers: list[Answer] = []
    self._port = port
    self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

  async def run(self, rate: float, secs: float) -> None:
    """Sends `rate` requests a second; waits for all answers."""
    begin = time.monotonic()
    async with asyncio.TaskGroup() as group:
      for i in range(round(rate * secs)):
        await asyncio.sleep(begin + i / rate - time.monotonic())
        group.create_task(self._ask())

  async def _ask(self) -> None:
    begin = time.monotonic()
    if self._free:
      reader, writer = self._free.pop()
    else:
      reader, writer = await asyncio.open_connection('127.0.0.1', self._port)
    writer.write(_REQUEST)
    head = await reader.readuntil(b'\r\n\r\n')
    found = _LENGTH.search(head)
    assert found, head
    await reader.readexactly(int(found.group(1)))
    self._free.append((reader, writer))
    status, hint = int(head.split(b' ', 2)[1]), b'retry-after-ms' in head
    self.answers.append(Answer(status, hint, begin, time.monotonic()))

  def answered(self, begin: float, end: float) -> float:
    """Answers a second between two moments."""
    good = [a for a in self.answers if a.status == 200 and begin < a.end < end]
    return len(good) / (end - begin)


@contextlib.contextmanager
def gateway(root: str) -> Iterator[tuple[psutil.Process, int]]:
  """Starts a gateway; gives its process and its port."""
  path = os.pathsep.join(filter(None, sys.path))
  with subprocess.Popen(
    [sys.executable, '-m', 'saxml_ext.http.gateway', '--port=0'],
    env={
      **os.environ,
      'PYTHONPATH': path,
      'SAX_ROOT': root,
      'SAX_CELL': processes.CELL,
    },
    stdout=subprocess.PIPE,
    text=True,
  ) as process:
    try:
      assert process.stdout is not None
      port = int(process.stdout.readline().rpartition(':')[2])
      yield psutil.Process(process.pid), port
    finally:
      process.terminate()


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What was measured.

  Attributes:
    capacity: requests a second that the cell answers at most.
    goodput: that it answered while too much was asked.
    answers: of that time.
    cpu_secs: of the gateway in that time.
  """

  capacity: float
  goodput: float
  answers: list[Answer]
  cpu_secs: float


def _cpu(process: psutil.Process) -> float:
  times = process.cpu_times()
  return times.user + times.system


async def _measure(process: psutil.Process, port: int) -> Outcome:
  clients = Clients(port)
  await clients.run(_THEORY / 2, 2.0)  # Until all have found each other.
  secs = max(2.0, _SECS.value / 6)
  begin = time.monotonic()
  await clients.run(1.2 * _THEORY, secs)
  capacity = clients.answered(begin + secs / 4, begin + secs)
  clients.answers.clear()
  begin, cpu_secs = time.monotonic(), _cpu(process)
  await clients.run(_TIMES.value * capacity, _SECS.value)
  goodput = clients.answered(begin, begin + _SECS.value)
  cpu_secs = _cpu(process) - cpu_secs
  return Outcome(capacity, goodput, clients.answers, cpu_secs)


def _print(outcome: Outcome) -> None:
  answers = outcome.answers
  refused = [a for a in answers if a.status == 429]
  other = {a.status for a in answers} - {200, 429}
  waited = sorted(a.end - a.begin for a in refused) or [0.0]
  print(f'capacity: {outcome.capacity:.1f} requests/s')
  print(f'sent meanwhile: {len(answers) / _SECS.value:.1f} requests/s')
  print(
    f'answered: {100 * outcome.goodput / outcome.capacity:.1f} % of the capacity'
  )
  print(
    f'refused: {len(refused)}, of them without a hint'
    f' {sum(not a.has_hint for a in refused)}, within'
    f' {1e3 * waited[len(waited) // 2]:.0f} ms (p50),'
    f' {1e3 * processes.percentile(waited, 99):.0f} ms (p99)'
  )
  per_request = 1e3 * outcome.cpu_secs / len(answers)
  print(f'CPU of the gateway: {per_request:.2f} ms a request')
  print(f'other statuses: {sorted(other) or "none"}')
  print(f'{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}')


def main(argv: Sequence[str]) -> None:
  """Prints the figures."""
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {" ".join(argv[1:])}')
  with (
    tempfile.TemporaryDirectory() as directory,
    served_lib.start(
      directory, [f'--step_secs={_STEP_SECS}'], _OVERRIDES
    ) as served,
    gateway(served.cell.root) as (process, port),
  ):
    _print(asyncio.run(_measure(process, port)))


if __name__ == '__main__':
  app.run(main)
