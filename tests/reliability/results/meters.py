"""What processes hold: memory, file descriptors, threads; how busy all is."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import time

_TICKS = os.sysconf('SC_CLK_TCK')


@dataclasses.dataclass(frozen=True)
class Reading:
  """One look at a process.

  Attributes:
    at: monotonic seconds.
    memory: MB of its own, without the files it has mapped.
    descriptors: open files and sockets.
    threads: of it.
    cpu: seconds of processors it has used so far.
  """

  at: float
  memory: float
  descriptors: int
  threads: int
  cpu: float


def read(pid: int) -> Reading | None:
  """Looks at a process; None if it is gone, or somebody else's."""
  process = pathlib.Path('/proc') / str(pid)
  try:
    status = dict(
      line.split(':', 1)
      for line in (process / 'status').read_text().splitlines()
      if ':' in line
    )
    times = (process / 'stat').read_text().rsplit(')', 1)[1].split()
    if 'RssAnon' not in status:
      return None  # It has ended, and nobody has waited for it yet.
    return Reading(
      at=time.monotonic(),
      memory=int(status['RssAnon'].split()[0]) * 1024 / 1e6,
      descriptors=len(os.listdir(process / 'fd')),
      threads=int(status['Threads']),
      cpu=(int(times[11]) + int(times[12])) / _TICKS,
    )
  except (FileNotFoundError, ProcessLookupError, PermissionError):
    return None


def memory(pid: int) -> float:
  """MB of a process's own memory.

  Raises:
    RuntimeError: it is gone.
  """
  found = read(pid)
  if found is None:
    raise RuntimeError(f'process {pid} has ended')
  return found.memory


def slope_per_minute(readings: Sequence[Reading]) -> float:
  """MB a minute by which memory grew, by least squares; 0 of one reading."""
  if len(readings) < 2:
    return 0.0
  n = len(readings)
  mean_at = sum(r.at for r in readings) / n
  mean = sum(r.memory for r in readings) / n
  spread = sum((r.at - mean_at) ** 2 for r in readings)
  if not spread:
    return 0.0
  return (
    60.0 * sum((r.at - mean_at) * (r.memory - mean) for r in readings) / spread
  )


class Load:
  """How busy the machine is while the context lasts.

  Attributes:
    busy: mean share of its processors that worked, by whomever; once ended.
  """

  def __init__(self) -> None:
    self.busy = 0.0

  def __enter__(self) -> 'Load':
    self._begin = _ticks()
    return self

  def __exit__(self, *unused) -> None:
    total, idle = (a - b for a, b in zip(_ticks(), self._begin, strict=True))
    self.busy = 1 - idle / total if total else 0.0

  def describe(self) -> str:
    """The machine and its load, for people."""
    cores = os.cpu_count() or 1
    gigabytes = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9
    return (
      f'{_processor()}, {cores} cores, {gigabytes:.0f} GB;'
      f' {100 * self.busy:.0f} % busy, tests included'
    )


def _ticks() -> tuple[int, int]:
  """Ticks of all processors: all, and those that nobody used."""
  first = pathlib.Path('/proc/stat').read_text().splitlines()[0]
  values = [int(word) for word in first.split()[1:9]]
  return sum(values), values[3] + values[4]


def _processor() -> str:
  for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
    if line.startswith('model name'):
      return line.split(':', 1)[1].strip()
  return os.uname().machine
