"""Measures memory, file descriptors, threads and load of processes."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import time

_TICKS = os.sysconf('SC_CLK_TCK')


@dataclasses.dataclass(frozen=True)
class Reading:
  """A sample of a process.

  Attributes:
    at: The monotonic time in seconds.
    memory: The process's own memory in MB, without mapped files.
    descriptors: The number of open files and sockets.
    threads: The number of threads.
    cpu: The CPU seconds used so far.
  """

  at: float
  memory: float
  descriptors: int
  threads: int
  cpu: float


def read(pid: int) -> Reading | None:
  """Returns a sample of a process, or None if it is gone or not accessible."""
  process = pathlib.Path('/proc') / str(pid)
  try:
    status = dict(
      line.split(':', 1)
      for line in (process / 'status').read_text().splitlines()
      if ':' in line
    )
    times = (process / 'stat').read_text().rsplit(')', 1)[1].split()
    if 'RssAnon' not in status:
      return None  # The process is a zombie.
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
  """Returns a process's own memory in MB.

  Raises:
    RuntimeError: The process is gone.
  """
  reading = read(pid)
  if reading is None:
    raise RuntimeError(f'process {pid} has ended')
  return reading.memory


def slope_per_minute(readings: Sequence[Reading]) -> float:
  """Returns the growth of memory in MB per minute, by least squares.

  The growth of a single sample is 0.
  """
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
  """Measures the load of the machine until the context ends.

  Attributes:
    busy: The mean share of busy processors, set at the end.
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
    """Returns a text about the machine and its load."""
    cores = os.cpu_count() or 1
    gigabytes = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9
    return (
      f'{_processor()}, {cores} cores, {gigabytes:.0f} GB;'
      f' {100 * self.busy:.0f} % busy, tests included'
    )


def _ticks() -> tuple[int, int]:
  """Returns the ticks of all processors: all, and the idle ones."""
  first = pathlib.Path('/proc/stat').read_text().splitlines()[0]
  values = [int(word) for word in first.split()[1:9]]
  return sum(values), values[3] + values[4]


def _processor() -> str:
  for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
    if line.startswith('model name'):
      return line.split(':', 1)[1].strip()
  return os.uname().machine
