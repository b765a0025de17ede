"""Measures the effect of an attack on other clients: their calls, by time."""

from collections.abc import Sequence
import dataclasses
import importlib.util
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

from saxml_ext.common import net
from tests.chaos import processes
from tests.reliability.results import figures

_ASKER = 'tests.reliability.clients.asker'


@dataclasses.dataclass(frozen=True)
class Call:
  """A call that has ended.

  Attributes:
    begin: The monotonic time of its start.
    secs: The duration in seconds.
    code: The name of the status, such as "OK".
  """

  begin: float
  secs: float
  code: str


@dataclasses.dataclass
class Windows:
  """Times of quiet and of attack, in turn, so noise affects both equally."""

  quiet: list[tuple[float, float]] = dataclasses.field(default_factory=list)
  attacked: list[tuple[float, float]] = dataclasses.field(default_factory=list)


class Traffic:
  """An `asker` program that runs until the context ends.

  Attributes:
    process: The process of the program.
  """

  def __init__(
    self,
    directory: pathlib.Path,
    name: str,
    *flags: str,
    program: str = _ASKER,
  ):
    """Starts the program.

    Args:
      directory: The directory for its records.
      name: The name of the records.
      *flags: The flags of the program.
      program: The module of the program.
    """
    self._output = directory / f'{name}.calls'
    with (directory / f'{name}.log').open('wb') as log:
      self.process = start(program, [f'--output={self._output}', *flags], log)

  def __enter__(self) -> 'Traffic':
    processes.wait(lambda: any(c.code == 'OK' for c in self.calls()))
    return self

  def __exit__(self, *unused) -> None:
    end(self.process)

  def calls(self) -> list[Call]:
    """Returns all calls that have ended so far."""
    if not self._output.exists():
      return []
    calls = []
    # The last line may be incomplete.
    for line in self._output.read_text().split('\n')[:-1]:
      begin, secs, code = line.split()
      calls.append(Call(float(begin), float(secs), code))
    return calls


def start(module: str, flags: Sequence[str], log) -> subprocess.Popen[str]:
  """Starts a program that ends when its standard input is closed."""
  spec = importlib.util.find_spec(module)
  if spec is None or spec.origin is None:
    raise ValueError(f'there is no module {module}')
  return subprocess.Popen(
    [sys.executable, spec.origin, *flags],
    env={
      **os.environ,
      'PYTHONPATH': os.pathsep.join(sys.path),
      net.LOOPBACK_VARIABLE: '1',
    },
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=log,
    text=True,
  )


def end(process: subprocess.Popen[str], secs: float = 60.0) -> str:
  """Ends a program of `start`; kills it after a timeout.

  Returns:
    The output of the program.
  """
  try:
    return process.communicate(timeout=secs)[0]
  except subprocess.TimeoutExpired:
    process.kill()
    return process.communicate()[0]


def within(
  calls: Sequence[Call], windows: Sequence[tuple[float, float]]
) -> list[Call]:
  """Returns the calls that began in one of the windows."""
  return [c for c in calls if any(a <= c.begin < b for a, b in windows)]


def compare(
  name: str, calls: Sequence[Call], windows: Windows, most: float | None
) -> list[figures.Figure]:
  """Returns figures of calls in quiet windows and under attack.

  Args:
    name: The name of the calls, such as "Generate".
    calls: The calls of `Traffic`.
    windows: The windows of quiet and of attack.
    most: The limit of the ratio of both p99; None if there are too few calls.
      The ratio compares neighboring windows, so that other work on the machine
      affects both equally.
  """
  quiet = within(calls, windows.quiet)
  attacked = within(calls, windows.attacked)
  failed = [c for c in quiet + attacked if c.code != 'OK']
  ratios = []
  for before, under in zip(windows.quiet, windows.attacked, strict=True):
    pair = within(calls, [before]), within(calls, [under])
    if all(pair):  # A short window may have no call.
      ratios.append(_p99(pair[1]) / _p99(pair[0]))
  return [
    figures.Figure(f"others' {name} calls", len(quiet) + len(attacked)),
    figures.none_of(f"others' {name} calls that failed", failed),
    figures.Figure(f"others' {name}, p99 in quiet", 1e3 * _p99(quiet), 'ms'),
    figures.Figure(
      f"others' {name}, p99 meanwhile", 1e3 * _p99(attacked), 'ms'
    ),
    figures.Figure(
      f"others' {name}, ratio of p99, median of {len(ratios)} pairs of windows",
      statistics.median(ratios) if ratios else math.inf,
      most=most,
    ),
  ]


def _p99(calls: Sequence[Call]) -> float:
  if not calls:
    return math.inf
  return processes.percentile([c.secs for c in calls], 99)


def sleep_until(moment: float) -> None:
  """Sleeps until a monotonic time; returns at once if it has passed."""
  time.sleep(max(0.0, moment - time.monotonic()))
