"""Searches the highest speed that LoadGen calls valid, one run after another.

Offline and the streams tell their speed by themselves: a run is repeated only
until it is long enough to count. Server runs send at a rate: the rate grows
while the system holds it, then the gap between the highest rate that it holds
and the lowest that it does not is halved. It holds a rate if LoadGen calls the
run valid and answers do not fall behind: a short run ends before a queue that
grows reaches the bound, a long one would not.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import os
import time

from harness import errors
from harness.loadgen import loadgen_log
from harness.loadgen import settings
from harness.loadgen import timeline
from harness.results import entry
from harness.results import figures
from harness.rules import rounds
from harness.scenarios import load as load_lib
from harness.scenarios import outcome
from saxml_ext.common import files
from serve import progress as progress_lib

# A search ends when valid and invalid rates are this close, as a ratio.
_CLOSE = 1.05
# The first step, and by how much steps grow while all are valid, or none is.
_GROWTH = 1.25
_MOST_GROWTH = 2.0
_MOST_PROBES = 12
# Time after which no further probe begins.
_MOST_SECS = 3600.0
# The later half of the samples over the earlier, in time to the answer.
_BEHIND = 2.0
# The expected latency of a stream, over the measured one. LoadGen prepares
# twice as many queries as take min_duration at the expected latency; a run that
# is out of queries before min_duration is invalid, and one that issues samples
# equally issues all that are prepared.
_STREAM_MARGIN = 1.6


class SearchError(errors.HarnessError):
  """No valid run was found."""


@dataclasses.dataclass(frozen=True)
class Trial:
  """A run of a search.

  Attributes:
    log: LoadGen's.
    times: of its samples.
  """

  log: loadgen_log.RunLog
  times: Sequence[timeline.Times] = ()

  @property
  def behind(self) -> bool:
    """Whether answers fall behind: those to the later half of the samples take
    much longer than those to the earlier half.

    A queue that begins empty and grows steadily makes that 3 times as long.
    """
    waits = [
      each.done - each.issued
      for each in sorted(self.times, key=lambda each: each.issued)
    ]
    half = len(waits) // 2
    if not half:
      return False
    return sum(waits[half:]) > _BEHIND * sum(waits[: len(waits) - half])

  @property
  def held(self) -> bool:
    """Whether the system holds the speed."""
    return self.log.valid and not self.behind

  @property
  def verdict(self) -> str:
    if not self.log.valid:
      return 'INVALID'
    return 'VALID, but answers fall behind' if self.behind else 'VALID'


@dataclasses.dataclass(frozen=True)
class Found:
  """The end of a search.

  Attributes:
    speed: what later runs should ask for.
    log: of the last valid run at that speed.
    probes: all that was tried.
  """

  speed: load_lib.Speed
  log: loadgen_log.RunLog
  probes: tuple[outcome.Probe, ...]


def search(
  scenario: str,
  start: load_lib.Speed,
  run: Callable[[load_lib.Speed, int], Trial],
  progress: progress_lib.Progress,
  clock: Callable[[], float] = time.monotonic,
) -> Found:
  """Searches, for _MOST_SECS and the probe that is running then at most.

  Args:
    scenario: LoadGen's name of it.
    start: what is known or guessed of the system.
    run: makes a performance run that asks for a speed; gets the probe's number.
    progress: told of each probe.
    clock: seconds that have passed.

  Raises:
    SearchError: no run was valid.
    errors.HarnessError: a run failed.
  """
  if rounds.SCENARIOS[scenario].bounded:
    return _Server(run, progress, clock).search(start)
  return _until_long_enough(scenario, start, run, progress, clock)


def _until_long_enough(scenario, speed, run, progress, clock) -> Found:
  probes: list[outcome.Probe] = []
  end = clock() + _MOST_SECS
  for number in range(1, _MOST_PROBES + 1):
    if clock() > end:
      break
    trial = run(speed, number)
    log = trial.log
    measured = _measured(scenario, log)
    verdict = 'VALID' if log.valid else 'INVALID'
    probes.append(outcome.Probe(str(speed), verdict, _words(scenario, log)))
    progress.stage(f'probe {number}: {probes[-1]}')
    if log.valid:
      return Found(measured, log, tuple(probes))
    speed = measured
  raise SearchError(_nothing(probes))


def _measured(scenario: str, log: loadgen_log.RunLog) -> load_lib.Speed:
  rules = rounds.SCENARIOS[scenario]
  if rules.at_once:
    rate = figures.number(log, rules.figure_key)
    return load_lib.Speed(target_qps=settings.target_qps_from_rate(rate))
  mean_ns = figures.number(log, rules.extreme_key('mean'))
  return load_lib.Speed(latency_ms=mean_ns / 1e6 * _STREAM_MARGIN)


class _Server:
  """The search for the rate of a Server run."""

  def __init__(self, run, progress, clock):
    self._run = run
    self._progress = progress
    self._clock = clock
    self._end = clock() + _MOST_SECS
    self._probes: list[outcome.Probe] = []

  def search(self, start: load_lib.Speed) -> Found:
    rate = start.target_qps
    assert rate, 'a Server search starts at a rate'
    best: tuple[float, loadgen_log.RunLog] | None = None
    worst: float | None = None
    last: float | None = None
    growth = _GROWTH
    while len(self._probes) < _MOST_PROBES and self._clock() <= self._end:
      trial = self._probe(rate)
      last = rate
      if trial.held:
        best = (rate, trial.log)
      else:
        worst = rate
      if best and worst and worst <= best[0] * _CLOSE:
        break
      if best and worst:
        rate = (best[0] * worst) ** 0.5
      else:
        rate = rate * growth if best else rate / growth
        growth = min(growth * _GROWTH, _MOST_GROWTH)
    if best is None:
      raise SearchError(_nothing(self._probes))
    if last != best[0]:
      best = self._again(best[0])
    rate, log = best
    return Found(load_lib.Speed(target_qps=rate), log, tuple(self._probes))

  def _again(self, rate: float) -> tuple[float, loadgen_log.RunLog]:
    """Repeats the best run, so that its logs are the last; a little slower
    each time that it is not held any more."""
    for _ in range(_MOST_PROBES):
      trial = self._probe(rate)
      if trial.held:
        return rate, trial.log
      rate /= _CLOSE
    raise SearchError(_nothing(self._probes))

  def _probe(self, rate: float) -> Trial:
    number = len(self._probes) + 1
    speed = load_lib.Speed(target_qps=rate)
    trial = self._run(speed, number)
    words = _words(rounds.SERVER, trial.log)
    self._probes.append(outcome.Probe(str(speed), trial.verdict, words))
    self._progress.stage(f'probe {number}: {self._probes[-1]}')
    return trial


def _words(scenario: str, log: loadgen_log.RunLog) -> str:
  rules = rounds.SCENARIOS[scenario]
  if rules.at_once:
    return f'{figures.number(log, rules.figure_key):.2f} {rules.unit}'
  latency = figures.number(log, rules.latency_key(rules.percentile))
  return f'{rules.rank} percentile {latency / 1e6:.1f} ms'


def _nothing(probes: list[outcome.Probe]) -> str:
  tried = '; '.join(map(str, probes))
  return (
    f'no run of {_MOST_PROBES} at most, begun within {_MOST_SECS / 60:.0f}'
    f' minutes, was valid: {tried}. See the summary of the last run; a system'
    ' may be too slow for the bound, or --min_duration too long for it'
  )


@dataclasses.dataclass(frozen=True)
class Kept:
  """A speed that a search found, kept for later runs.

  Attributes:
    speed: The speed that later runs ask for.
    when: The time when it was found, ISO 8601 in UTC.
  """

  speed: load_lib.Speed
  when: str


def find(path: str | None, key: str) -> Kept | None:
  """Returns the speed that was kept under a key; None if none was.

  Raises:
    ValueError: The file is damaged.
  """
  return _read(path).get(key) if path else None


def keep(path: str, key: str, speed: load_lib.Speed) -> None:
  """Keeps a speed under a key, in place of an earlier one.

  Raises:
    OSError, ValueError: The file cannot be written, or is damaged.
  """
  records = {**_read(path), key: Kept(speed, entry.now())}
  os.makedirs(os.path.dirname(path), exist_ok=True)
  files.write_json(path, records)


def _read(path: str) -> Mapping[str, Kept]:
  try:
    return files.read_json(path, dict[str, Kept])
  except FileNotFoundError:
    return {}
  except ValueError as error:
    raise ValueError(
      f'{path}, which keeps targets that were found, is damaged ({error});'
      ' remove it and find them again'
    ) from error
