"""Estimates the time that jobs take, from the speeds of their systems.

The estimate covers LoadGen's runs. It does not cover the start of the system,
the warm-up and the scoring.
"""

from collections.abc import Sequence
import dataclasses
import math

from harness.benchmarks import benchmark as benchmark_lib
from harness.loadgen import run as run_lib
from harness.loadgen import settings as settings_lib
from harness.scenarios import load as load_lib
from harness.scenarios import search
from saxml_ext.common.pages import text_columns

# LoadGen issues this many times the samples of min_duration in Offline.
_OFFLINE_FACTOR = 1.1
# The measured speed is multiplied and divided by this for the range.
_SPREAD = 1.25
# The usual number of runs of a search that finds a rate, and of one that only
# repeats a run until it is long enough.
_PROBES = {True: (5, 13), False: (1, 2)}


@dataclasses.dataclass(frozen=True)
class Work:
  """The runs of a job.

  Attributes:
    load: The load that LoadGen generates.
    benchmark: The benchmark.
    sample_count: The number of samples in the set.
    modes: The modes of the job.
    tests: The number of compliance tests.
    speed: The speed of the system.
  """

  load: load_lib.Load
  benchmark: benchmark_lib.Benchmark
  sample_count: int
  modes: Sequence[str]
  tests: int
  speed: load_lib.Speed

  @property
  def rate(self) -> float:
    """The expected rate in samples/s."""
    rules = self.load.rules
    if rules.streams:
      latency = self.load.target_latency_ms or self.speed.latency_ms
      assert latency
      return rules.samples_per_query * 1000 / latency
    rate = self.load.target_qps or self.speed.target_qps
    assert rate
    return rate / settings_lib.MEASURED_RATE_MARGIN if rules.at_once else rate

  @property
  def range_secs(self) -> tuple[float, float]:
    """The shortest and the longest expected time of all runs, in seconds."""
    return self._seconds(_SPREAD, 0), self._seconds(1 / _SPREAD, 1)

  def _seconds(self, factor: float, end: int) -> float:
    # LoadGen sends Server's queries at the given rate, so it is certain.
    rate = self.rate * (1.0 if self.load.rules.bounded else factor)
    run = self._performance_secs(rate)
    total = 0.0
    if run_lib.ACCURACY in self.modes:
      total += self.sample_count / rate
    if load_lib.FIND_PERFORMANCE in self.modes:
      bounded = self.load.rules.bounded
      most = search.MOST_SECS + (search.MOST_REPEAT_SECS if bounded else 0)
      total += min(_PROBES[bounded][end] * run, most + run)
    runs = run_lib.PERFORMANCE in self.modes
    tests = self.tests if load_lib.COMPLIANCE in self.modes else 0
    return total + (runs + tests) * run

  def _performance_secs(self, rate: float) -> float:
    """Returns the expected time of a performance run at a rate."""
    settings = load_lib.run_settings(
      self.load, self.benchmark, self.sample_count, self.speed
    )
    rules = self.load.rules
    at_least = settings.min_duration_ms / 1000
    count = max(
      settings.min_query_count * max(1, rules.samples_per_query),
      rate * at_least,
    )
    if rules.at_once:
      target = settings.target_qps or rate
      count = max(count, _OFFLINE_FACTOR * target * at_least)
    if settings.issues_equally:
      count = math.ceil(count / settings.buffer_count) * settings.buffer_count
    if settings.max_query_count:
      count = settings.max_query_count * max(1, rules.samples_per_query)
    longest = settings.max_duration_ms / 1000 or math.inf
    return min(longest, count / rate)


def text(works: Sequence[Work]) -> str:
  """Returns the time plan of several jobs as a table."""
  ranges = [work.range_secs for work in works]
  rows = [('Time plan', 'minutes', 'from the speed')]
  for work, secs in zip(works, ranges, strict=True):
    speed = f'{work.rate:.2f} samples/s'
    rows.append((work.load.scenario, _minutes(*secs), speed))
  rows.append(('total', _minutes(*map(sum, zip(*ranges))), ''))
  return text_columns.render(rows)


def _minutes(low_secs: float, high_secs: float) -> str:
  return f'{low_secs / 60:.1f} to {high_secs / 60:.1f}'
