"""Searches for the highest speed that LoadGen reports as valid.

Offline and the streams measure their speed directly: a run is repeated only
until it is long enough to count. Server runs send at a given rate. The rate
grows while the system holds it. Then the gap between the highest held rate and
the lowest failed rate is halved. The system holds a rate if LoadGen reports a
valid run, the latencies of tokens are within the bounds of the rules, and
answers do not fall behind. The last condition is necessary because a short run
ends before a growing queue exceeds the bound, but a long run does not.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import os
import time

from harness import errors
from harness.loadgen import loadgen_log
from harness.loadgen import settings
from harness.results import entry
from harness.results import figures
from harness.rules import rounds
from harness.scenarios import load as load_lib
from saxml_ext.common import files
from serve import progress as progress_lib

# A search ends when the ratio of invalid and valid rates is this small.
_CLOSE = 1.05
# The first step as a factor. It grows while all rates are valid, or while none
# is.
_GROWTH = 1.25
_MOST_GROWTH = 2.0
_MOST_PROBES = 12
# The time after which no further rate is tried.
MOST_SECS = 3600.0
# The time after that in which the best rate, or a slightly lower one, must hold
# again.
MOST_REPEAT_SECS = 1800.0
# Answers fall behind if the later half of the samples takes more than this many
# times as long to answer as the earlier half.
_BEHIND = 2.0
# The ratio of the expected latency of a stream to the measured latency. LoadGen
# prepares as many queries as fit into twice min_duration at the expected
# latency. A run that has no more queries before min_duration is invalid. A run
# that issues samples equally issues all prepared queries.
_STREAM_MARGIN = 1.6


class SearchError(errors.HarnessError):
  """Raised if no valid run was found."""


@dataclasses.dataclass(frozen=True)
class Trial:
  """A run of a search.

  Attributes:
    log: LoadGen's log of the run.
    times: The times of its samples.
    limits: The bounds on the latencies of tokens; None: there are none.
  """

  log: loadgen_log.RunLog
  times: Sequence[loadgen_log.Times] = ()
  limits: rounds.TokenLimits | None = None

  @property
  def behind(self) -> bool:
    """True if answers fall behind.

    The answers to the later half of the samples then take much longer than
    those to the earlier half. A queue that begins empty and grows steadily
    takes 3 times as long.
    """
    waits = [
      sample.done - sample.issued
      for sample in sorted(self.times, key=lambda sample: sample.issued)
    ]
    half = len(waits) // 2
    if not half:
      return False
    return sum(waits[half:]) > _BEHIND * sum(waits[: len(waits) - half])

  @property
  def held(self) -> bool:
    """True if the system holds the speed."""
    return self.verdict == 'VALID'

  @property
  def verdict(self) -> str:
    values = self.log.values
    if not self.log.valid:
      # The percentile is below its bound, but the run has too few samples.
      early = values.get('early_stopping_met') is False
      if early and values.get('result_perf_constraints_met') is True:
        return (
          'INVALID by early stopping, which allows fewer slow samples in a'
          ' short run'
        )
      return 'INVALID'
    if figures.over_limits(self.log, self.limits):
      return 'VALID, but not below a limit on tokens'
    return 'VALID, but answers fall behind' if self.behind else 'VALID'


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The result of a search.

  Attributes:
    speed: The speed that later runs should use.
    log: The log of the last valid run at that speed.
    probes: The trials of the search, one line each.
  """

  speed: load_lib.Speed
  log: loadgen_log.RunLog
  probes: tuple[str, ...]


def search(
  scenario: str,
  start: load_lib.Speed,
  run: Callable[[load_lib.Speed, int], Trial],
  progress: progress_lib.Progress,
  clock: Callable[[], float] = time.monotonic,
) -> Outcome:
  """Searches for the highest valid speed.

  No probe begins after MOST_SECS. Only the best rate of Server is then still
  repeated: once in any case, and at lower rates until MOST_REPEAT_SECS later.

  Args:
    scenario: LoadGen's name of the scenario.
    start: The known or estimated speed of the system.
    run: The function that runs performance at a speed. Its second argument is
      the number of the probe.
    progress: The output for a message about each probe.
    clock: A function that returns the elapsed time in seconds.

  Raises:
    SearchError: No run was valid, or no rate of Server was held twice.
    errors.HarnessError: A run failed.
  """
  if rounds.SCENARIOS[scenario].bounded:
    return _Server(run, progress, clock).search(start)
  return _until_long_enough(scenario, start, run, progress, clock)


def _until_long_enough(scenario, speed, run, progress, clock) -> Outcome:
  probes: list[str] = []
  end = clock() + MOST_SECS
  for number in range(1, _MOST_PROBES + 1):
    if clock() > end:
      break
    log = run(speed, number).log
    measured = _measured(scenario, log)
    verdict = 'VALID' if log.valid else 'INVALID'
    probes.append(probe_text(speed, verdict, _words(scenario, log)))
    progress.stage(f'probe {number}: {probes[-1]}')
    if log.valid:
      return Outcome(measured, log, tuple(probes))
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
    self._end = clock() + MOST_SECS
    self._probes: list[str] = []

  def search(self, start: load_lib.Speed) -> Outcome:
    rate = start.target_qps
    assert rate, 'a Server search starts at a rate'
    best: float | None = None
    worst: float | None = None
    growth = _GROWTH
    while len(self._probes) < _MOST_PROBES and self._clock() <= self._end:
      trial = self._probe(rate)
      if trial.held:
        best = rate
      else:
        worst = rate
      if best and worst and worst <= best * _CLOSE:
        break
      if best and worst:
        rate = (best * worst) ** 0.5
      else:
        rate = rate * growth if best else rate / growth
        growth = min(growth * _GROWTH, _MOST_GROWTH)
    if best is None:
      raise SearchError(_nothing(self._probes))
    rate, log = self._again(best)
    return Outcome(load_lib.Speed(target_qps=rate), log, tuple(self._probes))

  def _again(self, rate: float) -> tuple[float, loadgen_log.RunLog]:
    """Repeats the best run, because a short run may be valid by chance.

    Each time that the system does not hold the rate, the next run is slightly
    slower. The logs of the returned rate are the last ones.
    """
    for number in range(_MOST_PROBES):
      if number and self._clock() > self._end + MOST_REPEAT_SECS:
        break
      trial = self._probe(rate)
      if trial.held:
        return rate, trial.log
      rate /= _CLOSE
    raise SearchError(
      f'no rate was held twice: {"; ".join(self._probes)}. Another program may'
      ' disturb the system. Pass a lower --target_qps without find_performance'
    )

  def _probe(self, rate: float) -> Trial:
    number = len(self._probes) + 1
    speed = load_lib.Speed(target_qps=rate)
    trial = self._run(speed, number)
    words = _words(rounds.SERVER, trial.log)
    self._probes.append(probe_text(speed, trial.verdict, words))
    self._progress.stage(f'probe {number}: {self._probes[-1]}')
    return trial


def probe_text(speed: load_lib.Speed, verdict: str, figure: str) -> str:
  """Returns a line about a trial of a search."""
  return f'asked for {speed}: {figure}, {verdict}'


def _words(scenario: str, log: loadgen_log.RunLog) -> str:
  rules = rounds.SCENARIOS[scenario]
  if rules.at_once:
    return f'{figures.number(log, rules.figure_key):.2f} {rules.unit}'
  if rules.bounded and (tokens := figures.token_latencies(log)):
    return ', '.join(
      f'{rules.rank} percentile of {t.abbreviation} {t.bounded_ms:.1f} ms'
      for t in tokens
    )
  latency = figures.number(log, rules.latency_key(rules.percentile))
  return f'{rules.rank} percentile {latency / 1e6:.1f} ms'


def _nothing(probes: Sequence[str]) -> str:
  tried = '; '.join(probes)
  return (
    f'no run was valid, of at most {_MOST_PROBES} runs that began within'
    f' {MOST_SECS / 60:.0f} minutes: {tried}. See the summary of the last'
    ' run. The system may be too slow for the bound, or --min_duration may be'
    ' too long'
  )


@dataclasses.dataclass(frozen=True)
class Kept:
  """A speed that a search found and that is kept for later runs.

  Attributes:
    speed: The speed that later runs use.
    when: The time when it was found, in ISO 8601 and UTC.
  """

  speed: load_lib.Speed
  when: str


def find(path: str | None, key: str) -> Kept | None:
  """Returns the speed that was kept under a key; None if there is none.

  Raises:
    ValueError: The file is damaged.
  """
  return _read(path).get(key) if path else None


def keep(path: str, key: str, speed: load_lib.Speed) -> None:
  """Keeps a speed under a key and replaces an earlier one.

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
      f'{path}, the file of found targets, is damaged ({error}). Remove it and'
      ' run find_performance again'
    ) from error
