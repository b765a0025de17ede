"""What a scenario asks of LoadGen, before and after a speed is known."""

from collections.abc import Mapping
import dataclasses

from harness.loadgen import settings
from harness.rules import rounds

# Execution modes, by the names that users of MLCommons' recipes know.
TEST = 'test'  # A handful of queries: does everything fit together?
FAST = 'fast'  # At most two minutes.
VALID = 'valid'  # As the rules ask.
EXECUTION_MODES = (TEST, FAST, VALID)
# Least number of unanswered samples by default, the one of Google's published
# main.py (--num_client_threads). Twice as many as a system computes together
# keep it busy while answers are on their way.
LEAST_CONCURRENCY = 200

# Bursts of the warm-up and the pause after it, as in Google's published backend
# (up to 32 samples) and Krai's (36 more, the slots of its Server params).
WARM_UP = '1,2,4,8,16,32,36'
WARM_UP_REST_SECS = 30.0

_FAST_MAX_DURATION_MS = 120_000
_FAST_MIN_DURATION_MS = 60_000


@dataclasses.dataclass(frozen=True)
class Load:
  """What the user asks of LoadGen.

  Attributes:
    scenario: LoadGen's scenario name.
    round: name of the round whose seeds and rules hold.
    execution_mode: TEST, FAST or VALID; None: a short run, LoadGen's verdict
      on which is what the demo shows.
    min_duration_ms: shortest valid performance run; None: as the mode says.
    target_qps: Offline, Server: None takes what is known of the system.
    target_latency_ms: Server: the bound; None takes the benchmark's. Single-
      and MultiStream: expected latency; None takes what is known.
    buffer_count: samples that a performance run draws from; 0: all.
    test_query_count: queries of the mode TEST.
    equal_issue: None: as the round's rules say.
    warm_up: see harness.loadgen.warm_up.
    warm_up_rest_secs: pause after it.
    concurrency: most unanswered samples; None: as many as keep the system
      busy.
    silence_secs: time without any answer that ends a run.
    user_conf_extra: lines that go to the end of user.conf, where they win.
  """

  scenario: str
  round: str
  execution_mode: str | None = None
  min_duration_ms: int | None = None
  target_qps: float | None = None
  target_latency_ms: float | None = None
  buffer_count: int = 0
  test_query_count: int = 5
  equal_issue: bool | None = None
  warm_up: str = ''
  warm_up_rest_secs: float = 0.0
  concurrency: int | None = None
  silence_secs: float = 120.0
  user_conf_extra: str = ''

  @property
  def rules(self) -> rounds.Scenario:
    """The scenario's rules."""
    return rounds.SCENARIOS[self.scenario]

  @property
  def streams(self) -> bool:
    """Whether one query follows the other, and its latency is the figure."""
    return self.rules.streams

  @property
  def needs_target(self) -> bool:
    """Whether nothing can run before the system's speed is roughly known."""
    if self.streams:
      return self.target_latency_ms is None
    return self.rules.needs_target and self.target_qps is None

  @property
  def duration_ms(self) -> int:
    """Shortest valid performance run, in milliseconds."""
    if self.min_duration_ms is not None:
      return self.min_duration_ms
    return {
      TEST: 0,
      FAST: _FAST_MIN_DURATION_MS,
      VALID: rounds.MIN_DURATION_MS,
      None: settings.DEMO_MIN_DURATION_MS,
    }[self.execution_mode]

  def in_flight(self, slots: int) -> int:
    """Returns the most unanswered samples.

    Args:
      slots: Samples that the system computes together; 0: not known.
    """
    return self.concurrency or max(LEAST_CONCURRENCY, 2 * slots)

  @property
  def parameters(self) -> Mapping[str, object]:
    """What of it decides a result."""
    return {
      key: value
      for key, value in dataclasses.asdict(self).items()
      if key not in ('scenario', 'round', 'silence_secs')
    } | {'min_duration_ms': self.duration_ms}


@dataclasses.dataclass(frozen=True)
class Speed:
  """What is known of a system in a scenario.

  Attributes:
    target_qps: Offline: samples/s that it is expected to exceed a little.
      Server: queries/s that it holds.
    latency_ms: of a query, Single- and MultiStream.
  """

  target_qps: float | None = None
  latency_ms: float | None = None

  def __str__(self) -> str:
    if self.latency_ms is not None:
      return f'{self.latency_ms:.2f} ms a query'
    if self.target_qps is not None:
      return f'{self.target_qps:.2f} samples/s'
    return 'nothing'


def run_settings(
  load: Load, benchmark: str, sample_count: int, speed: Speed
) -> settings.RunSettings:
  """LoadGen's settings of a scenario's runs.

  Args:
    load: what the user asks.
    benchmark: LoadGen's name of it.
    sample_count: samples of the set.
    speed: what is known of the system.

  Raises:
    ValueError: a value cannot be used.
  """
  buffer_count = load.buffer_count or sample_count
  test = load.execution_mode == TEST
  target_qps = load.target_qps or speed.target_qps
  if target_qps is None and load.rules.at_once:
    target_qps = settings.target_qps_for_one_pass(
      buffer_count, load.duration_ms
    )
  return settings.RunSettings(
    benchmark=benchmark,
    scenario=load.scenario,
    round=load.round,
    sample_count=sample_count,
    buffer_count=buffer_count,
    min_duration_ms=load.duration_ms,
    max_duration_ms=_FAST_MAX_DURATION_MS if load.execution_mode == FAST else 0,
    min_query_count=load.test_query_count
    if test
    else _min_queries(load, benchmark, buffer_count, speed),
    max_query_count=load.test_query_count if test else 0,
    target_qps=None if load.streams else target_qps,
    target_latency_ms=load.target_latency_ms
    or (speed.latency_ms if load.streams else None),
    equal_issue=_equal_issue(load),
  )


def _equal_issue(load: Load) -> bool | None:
  """Returns whether samples are issued equally; None: as the round says.

  Under equal issue LoadGen sends whole passes over the buffer. A fast run of a
  stream or a server would often be stopped in the middle of one.
  """
  if load.execution_mode == TEST:
    return False
  if load.execution_mode == FAST and not load.rules.at_once:
    return bool(load.equal_issue)
  return load.equal_issue


def _min_queries(
  load: Load, benchmark: str, buffer_count: int, speed: Speed
) -> int:
  official = rounds.ROUNDS[load.round].min_queries(benchmark, load.scenario)
  enough = load.rules.enough_queries or buffer_count
  if load.execution_mode == VALID:
    return max(official, enough)
  if load.execution_mode == FAST and not load.rules.at_once:
    # LoadGen logs an error if max_duration ends a run of fewer queries.
    rate = load.target_qps or speed.target_qps
    if load.streams:
      latency = load.target_latency_ms or speed.latency_ms
      rate = 1000 / latency if latency else None
    fitting = (rate or 0) * _FAST_MIN_DURATION_MS / 1000
    return max(1, min(enough, int(fitting)))
  return enough
