"""Searches the highest speed that LoadGen calls valid, one run after another.

Offline and the streams tell their speed by themselves: a run is repeated only
until it is long enough to count. Server runs send at a rate: the rate grows
while runs are valid, then the gap between the highest valid and the lowest
invalid one is halved.
"""

from collections.abc import Callable
import dataclasses

from harness import errors
from harness import progress as progress_lib
from harness.loadgen import loadgen_log
from harness.loadgen import rounds
from harness.loadgen import settings
from harness.scenarios import load as load_lib
from harness.scenarios import outcome

# A search ends when valid and invalid rates are this close, as a ratio.
_CLOSE = 1.05
# The first step, and by how much steps grow while all are valid, or none is.
_GROWTH = 1.25
_MOST_GROWTH = 2.0
_MOST_PROBES = 12
# The expected latency of a stream, over the measured one. LoadGen prepares
# twice as many queries as take min_duration at the expected latency; a run that
# is out of queries before min_duration is invalid, and one that issues samples
# equally issues all that are prepared.
_STREAM_MARGIN = 1.6


class SearchError(errors.HarnessError):
  """No valid run was found."""


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
  run: Callable[[load_lib.Speed, int], loadgen_log.RunLog],
  progress: progress_lib.Progress,
) -> Found:
  """Searches.

  Args:
    scenario: LoadGen's name of it.
    start: what is known or guessed of the system.
    run: makes a performance run that asks for a speed; gets the probe's number.
    progress: told of each probe.

  Raises:
    SearchError: no run was valid.
    errors.HarnessError: a run failed.
  """
  if scenario == rounds.SERVER:
    return _Server(run, progress).search(start)
  return _until_long_enough(scenario, start, run, progress)


def _until_long_enough(scenario, speed, run, progress) -> Found:
  probes: list[outcome.Probe] = []
  for number in range(1, _MOST_PROBES + 1):
    log = run(speed, number)
    measured = _measured(scenario, log)
    probes.append(outcome.Probe(str(speed), log.valid, _words(scenario, log)))
    progress.stage(f'probe {number}: {probes[-1]}')
    if log.valid:
      return Found(measured, log, tuple(probes))
    speed = measured
  raise SearchError(_nothing(probes))


def _measured(scenario: str, log: loadgen_log.RunLog) -> load_lib.Speed:
  if scenario == rounds.OFFLINE:
    rate = float(str(log.values['result_samples_per_second']))
    return load_lib.Speed(target_qps=settings.target_qps_from_rate(rate))
  mean_ns = float(str(log.values['result_mean_latency_ns']))
  if scenario == rounds.MULTI_STREAM:
    mean_ns = float(str(log.values['result_mean_query_latency_ns']))
  return load_lib.Speed(latency_ms=mean_ns / 1e6 * _STREAM_MARGIN)


class _Server:
  """The search for the rate of a Server run."""

  def __init__(self, run, progress):
    self._run = run
    self._progress = progress
    self._probes: list[outcome.Probe] = []

  def search(self, start: load_lib.Speed) -> Found:
    rate = start.target_qps
    assert rate, 'a Server search starts at a rate'
    best: tuple[float, loadgen_log.RunLog] | None = None
    worst: float | None = None
    last: float | None = None
    growth = _GROWTH
    while len(self._probes) < _MOST_PROBES:
      log = self._probe(rate)
      last = rate
      if log.valid:
        best = (rate, log)
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
    each time that it is not valid any more."""
    for _ in range(_MOST_PROBES):
      log = self._probe(rate)
      if log.valid:
        return rate, log
      rate /= _CLOSE
    raise SearchError(_nothing(self._probes))

  def _probe(self, rate: float) -> loadgen_log.RunLog:
    number = len(self._probes) + 1
    speed = load_lib.Speed(target_qps=rate)
    log = self._run(speed, number)
    probe = outcome.Probe(str(speed), log.valid, _words(rounds.SERVER, log))
    self._probes.append(probe)
    self._progress.stage(f'probe {number}: {probe}')
    return log


def _words(scenario: str, log: loadgen_log.RunLog) -> str:
  if scenario == rounds.OFFLINE:
    return (
      f'{float(str(log.values["result_samples_per_second"])):.2f} samples/s'
    )
  if scenario == rounds.SERVER:
    p99 = float(str(log.values['result_99.00_percentile_latency_ns']))
    return f'99th percentile {p99 / 1e6:.1f} ms'
  if scenario == rounds.SINGLE_STREAM:
    p90 = float(str(log.values['result_90.00_percentile_latency_ns']))
    return f'90th percentile {p90 / 1e6:.1f} ms'
  p99 = float(str(log.values['result_99.00_percentile_per_query_latency_ns']))
  return f'99th percentile {p99 / 1e6:.1f} ms'


def _nothing(probes: list[outcome.Probe]) -> str:
  tried = '; '.join(map(str, probes))
  return (
    f'no run was valid: {tried}. See the summary of the last run; a'
    ' system may be too slow for the bound, or --min_duration too long for it'
  )
