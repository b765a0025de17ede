"""Defines the load of a job: the flags of LoadGen's runs, and derived settings.

Some settings depend on the speed of the system. A flag, an earlier search or a
trial run provides the speed.
"""

from collections.abc import Mapping
import dataclasses
import math

from absl import flags

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.loadgen import run as run_lib
from harness.loadgen import settings
from harness.loadgen import user_conf
from harness.rules import rounds
from saxml_ext.common import user_path

# The modes of a job.
FIND_PERFORMANCE = 'find_performance'
COMPLIANCE = 'compliance'
MODES = (*run_lib.MODES, FIND_PERFORMANCE, COMPLIANCE)

# The execution modes, with the names that users of MLCommons' recipes know.
TEST = 'test'  # A handful of queries, to check the setup.
FAST = 'fast'  # At most two minutes.
VALID = 'valid'  # By the official rules.
EXECUTION_MODES = (TEST, FAST, VALID)
_FAST_MAX_DURATION_MS = 120_000
_FAST_MIN_DURATION_MS = 60_000

# The share of a trial's rate that a Server run sends. In the trial, all samples
# are issued at once. Random arrivals need some spare capacity, and more of it
# if the latency bound is short.
_SERVER_SHARE = 0.6
_SHORT_BOUND_MS = 1000.0
_SERVER_SHARE_SHORT = 0.35

_ROUND = flags.DEFINE_enum(
  'round',
  None,
  list(rounds.ROUNDS),
  'The round of MLPerf Inference whose seeds and rules LoadGen uses. Default:'
  f'{benchmarks.ended(" {0.last_round} for {0.title}, its last round,")} and'
  f' {rounds.LATEST} for the other models.',
)


class _RoundParser(flags.EnumParser):
  """Explains which rounds exist if a round is unknown."""

  def parse(self, argument: str) -> str:
    if argument not in self.enum_values:
      ended = benchmarks.ended(
        ' {0.title} is in {0.first_round} to {0.last_round},'
      )
      raise ValueError(
        f'The harness has no seeds and rules of this round.{ended} and other'
        f' models are in rounds up to {rounds.LATEST}. Available:'
        f' {", ".join(self.enum_values)}'
      )
    return super().parse(argument)


flags.FLAGS[_ROUND.name].parser = _RoundParser(list(rounds.ROUNDS))
EXECUTION_MODE = flags.DEFINE_enum(
  'execution_mode',
  None,
  EXECUTION_MODES,
  'test: a few queries; fast: one to two minutes; valid: the official rules.'
  ' Default: a performance run of --min_duration.',
)
_MIN_DURATION = flags.DEFINE_integer(
  'min_duration',
  None,
  'The duration of the shortest valid performance run in ms. Default:'
  f' {settings.DEMO_MIN_DURATION_MS}, or the duration of --execution_mode. The'
  f' official value is {rounds.MIN_DURATION_MS}.',
  lower_bound=0,
)
_TARGET_QPS = flags.DEFINE_float(
  'target_qps',
  None,
  'Offline: the expected samples/s, preferably too high. Server: the rate of'
  ' sent queries/s. Default: the result of find_performance, else the speed of'
  ' the accuracy run or of a trial.',
)
_TARGET_LATENCY_MS = flags.DEFINE_float(
  'target_latency_ms',
  None,
  'Server: the bound on the latency; default: the bound of the benchmark.'
  ' SingleStream, MultiStream: the expected latency of a query; default: the'
  ' result of find_performance, else of a trial.',
  lower_bound=1e-3,
)
_TEST_QUERY_COUNT = flags.DEFINE_integer(
  'test_query_count',
  5,
  'The number of queries of --execution_mode=test.',
  lower_bound=1,
)
_EQUAL_ISSUE = flags.DEFINE_bool(
  'equal_issue',
  None,
  'Issue all samples equally often, in whole passes over the buffer. Default:'
  ' by the rules of the round.',
)
_USER_CONF = flags.DEFINE_string(
  'user_conf_override_path',
  None,
  "A file with lines for the end of LoadGen's user.conf. They override earlier"
  ' lines.',
)


@dataclasses.dataclass(frozen=True)
class Load:
  """The load that the user requests from LoadGen.

  Attributes:
    scenario: LoadGen's name of the scenario.
    round: The name of the round whose seeds and rules apply.
    execution_mode: The mode TEST, FAST or VALID; None: a short run with
      LoadGen's verdict, as the demo shows.
    min_duration_ms: The duration of the shortest valid performance run; None:
      the one of the mode.
    target_qps: The target rate of Offline and Server; None: the known rate of
      the system.
    target_latency_ms: The latency bound of Server; None: the one of the
      benchmark. For SingleStream and MultiStream, the expected latency; None:
      the known latency.
    buffer_count: The number of samples that a performance run draws from; 0:
      all.
    test_query_count: The number of queries of the mode TEST.
    equal_issue: True if samples are issued equally often; None: by the rules of
      the round.
    warm_up: The bursts of the warm-up; see system.parse_bursts.
    warm_up_rest_secs: The pause after the warm-up.
    concurrency: The maximum number of unanswered samples; None: as many as
      keep the system busy.
    silence_secs: The time without any answer that ends a run.
    user_conf_extra: The lines at the end of user.conf. They override earlier
      lines.
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
    """The rules of the scenario."""
    return rounds.SCENARIOS[self.scenario]

  @property
  def streams(self) -> bool:
    """True if queries are sent one after another and latency is the figure."""
    return self.rules.streams

  @property
  def needs_target(self) -> bool:
    """True if a run requires an estimate of the system's speed."""
    if self.streams:
      return self.target_latency_ms is None
    return self.rules.needs_target and self.target_qps is None

  @property
  def duration_ms(self) -> int:
    """The duration of the shortest valid performance run, in milliseconds."""
    if self.min_duration_ms is not None:
      return self.min_duration_ms
    return {
      TEST: 0,
      FAST: _FAST_MIN_DURATION_MS,
      VALID: rounds.MIN_DURATION_MS,
      None: settings.DEMO_MIN_DURATION_MS,
    }[self.execution_mode]

  def in_flight(self, slots: int) -> int:
    """Returns the maximum number of unanswered samples.

    Args:
      slots: The number of samples that the system computes together; 0:
        unknown.
    """
    return self.concurrency or max(run_lib.LEAST_CONCURRENCY, 2 * slots)

  @property
  def parameters(self) -> Mapping[str, object]:
    """The settings of the load that decide a result."""
    return {
      key: value
      for key, value in dataclasses.asdict(self).items()
      if key not in ('scenario', 'round', 'silence_secs')
    } | {'min_duration_ms': self.duration_ms}


@dataclasses.dataclass(frozen=True)
class Speed:
  """The known speed of a system in a scenario.

  Attributes:
    target_qps: The target rate. For Offline, it is in samples/s and slightly
      above the measured rate. For Server, it is the rate in queries/s that the
      system holds.
    latency_ms: The latency of a query, for SingleStream and MultiStream.
  """

  target_qps: float | None = None
  latency_ms: float | None = None

  def __str__(self) -> str:
    if self.latency_ms is not None:
      return f'{self.latency_ms:.2f} ms a query'
    if self.target_qps is not None:
      return f'{self.target_qps:.2f} samples/s'
    return 'nothing'


def round_name(benchmark: benchmark_lib.Benchmark) -> str:
  """Returns the name of the round whose rules apply to a benchmark."""
  return _ROUND.value or benchmark.last_round


def from_flags(
  scenario: str, benchmark: benchmark_lib.Benchmark, watched: bool, serves: bool
) -> Load:
  """Returns the load that the flags request in a scenario.

  Args:
    scenario: LoadGen's name of the scenario.
    benchmark: The benchmark.
    watched: True if the job starts and watches the system.
    serves: True if the engine of a model server answers.

  Raises:
    OSError, ValueError: The value of a flag cannot be used.
  """
  qps, latency = _TARGET_QPS.value, _TARGET_LATENCY_MS.value
  if qps is not None and not (qps > 0 and math.isfinite(qps)):
    raise ValueError(f'--target_qps={qps} must be above 0 and finite')
  if scenario == rounds.SERVER and latency and latency % 1:
    raise ValueError(
      f'--target_latency_ms={latency} must be a whole number in {scenario},'
      ' because LoadGen cuts off decimals'
    )
  limits = benchmark.token_limits.get(scenario)
  if limits and latency:
    raise ValueError(
      f'--target_latency_ms={latency:g} has no effect in'
      f' {scenario} of {benchmark.name}. Its limits are {limits.ttft_ms:g} ms to the'
      f' first token and {limits.tpot_ms:g} ms per output token. Remove the'
      ' flag'
    )
  warm_up, rest_secs = _warm_up(serves and EXECUTION_MODE.value == VALID)
  extra = ''
  if _USER_CONF.value:
    path = user_path.resolve(_USER_CONF.value)
    extra = user_conf.read(path, benchmark, scenario)
  return Load(
    scenario=scenario,
    round=round_name(benchmark),
    execution_mode=EXECUTION_MODE.value,
    min_duration_ms=_MIN_DURATION.value,
    target_qps=qps,
    target_latency_ms=latency,
    buffer_count=run_lib.BUFFER_COUNT.value,
    test_query_count=_TEST_QUERY_COUNT.value,
    equal_issue=_EQUAL_ISSUE.value,
    warm_up=warm_up,
    warm_up_rest_secs=rest_secs,
    concurrency=run_lib.CONCURRENCY.value,
    silence_secs=run_lib.SILENCE_SECS.value
    or (
      run_lib.STARTED_SILENCE_SECS if watched else run_lib.RUNNING_SILENCE_SECS
    ),
    user_conf_extra=extra,
  )


def _warm_up(default: bool) -> tuple[str, float]:
  """Returns the bursts of the warm-up and the pause after it.

  Args:
    default: True if the system is warmed up when no flag is given.

  Raises:
    ValueError: A pause is given without a warm-up.
  """
  bursts, rest_secs = run_lib.WARM_UP.value, run_lib.WARM_UP_REST_SECS.value
  default = default and bursts is None
  if rest_secs is None:
    rest_secs = run_lib.WARM_UP_SECS if default else 0.0
  elif not (bursts or default):
    raise ValueError(
      f'--warm_up_rest_secs={rest_secs} has no effect without a warm-up. Add'
      f' --warm_up, such as --warm_up={run_lib.WARM_UP_BURSTS}, or remove it'
    )
  return run_lib.WARM_UP_BURSTS if default else bursts or '', rest_secs


def server_share(load: Load, benchmark: benchmark_lib.Benchmark) -> float:
  """Returns the share of a trial's rate that a Server run sends."""
  bound = load.target_latency_ms or benchmark.server_latency_ms
  if limits := benchmark.token_limits.get(load.scenario):
    bound = limits.ttft_ms
  return _SERVER_SHARE_SHORT if bound < _SHORT_BOUND_MS else _SERVER_SHARE


def run_settings(
  load: Load,
  benchmark: benchmark_lib.Benchmark,
  sample_count: int,
  speed: Speed,
) -> settings.RunSettings:
  """Returns LoadGen's settings for the runs of a scenario.

  Args:
    load: The load that the user requests.
    benchmark: The benchmark.
    sample_count: The number of samples in the set.
    speed: The known speed of the system.

  Raises:
    ValueError: A value cannot be used.
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
  """Returns True if samples are issued equally; None: by the round's rules.

  With equal issue, LoadGen sends whole passes over the buffer. A fast run of a
  stream or a server would often end in the middle of a pass.
  """
  if load.execution_mode == TEST:
    return False
  if load.execution_mode == FAST and not load.rules.at_once:
    return bool(load.equal_issue)
  return load.equal_issue


def _min_queries(
  load: Load,
  benchmark: benchmark_lib.Benchmark,
  buffer_count: int,
  speed: Speed,
) -> int:
  enough = load.rules.enough_queries or buffer_count
  if load.execution_mode == VALID:
    return max(enough, benchmark.min_queries(load.round, load.scenario))
  if load.execution_mode == FAST and not load.rules.at_once:
    # LoadGen logs an error if max_duration ends a run before this number of
    # queries.
    rate = load.target_qps or speed.target_qps
    if load.streams:
      latency = load.target_latency_ms or speed.latency_ms
      rate = 1000 / latency if latency else None
    fitting = (rate or 0) * _FAST_MIN_DURATION_MS / 1000
    return max(1, min(enough, int(fitting)))
  return enough
