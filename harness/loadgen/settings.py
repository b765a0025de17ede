"""Defines LoadGen's settings of a run: the user.conf and the round's values."""

from collections.abc import Mapping
import dataclasses
import typing

from harness.benchmarks import benchmark as benchmark_lib
from harness.rules import rounds

if typing.TYPE_CHECKING:
  import mlperf_loadgen

# The rules require a performance run of ten minutes. The default of the demo is
# shorter, because a newcomer wants to see the result of the whole job first.
DEMO_MIN_DURATION_MS = 10_000

# LoadGen issues target_qps * min_duration * 1.1 samples at once. If target_qps
# is too low, the run ends before min_duration and is INVALID. If it is too
# high, the run only takes longer. The measured speed is therefore multiplied by
# this factor.
MEASURED_RATE_MARGIN = 1.25


@dataclasses.dataclass(frozen=True)
class RunSettings:
  """The settings of one LoadGen run.

  Attributes:
    benchmark: The benchmark, which selects LoadGen's own defaults.
    scenario: LoadGen's name of the scenario, such as "Offline".
    round: The name of the round whose seeds and rules apply.
    sample_count: The number of samples in the set.
    buffer_count: The number of samples that LoadGen loads and draws from in a
      performance run. An accuracy run uses the whole set.
    min_duration_ms: The duration of the shortest valid performance run, in
      milliseconds.
    max_duration_ms: The time after which a performance run ends; 0: never.
    min_query_count: The minimum number of queries of a performance run; for
      Offline, of samples. If samples are issued equally, LoadGen itself rounds
      the number up to whole passes over the buffer.
    max_query_count: The maximum number of queries; 0: no limit.
    target_qps: The target rate. For Offline, the expected speed in samples/s,
      from which LoadGen derives the number of samples. For Server, the rate of
      sent queries per second.
    target_latency_ms: The bound on the latency of Server. For SingleStream and
      MultiStream, the expected latency of a query, from which LoadGen derives
      the number of queries.
    equal_issue: True if all samples are issued equally often; None: by the
      rules of the round.
  """

  benchmark: benchmark_lib.Benchmark
  scenario: str
  round: str
  sample_count: int
  buffer_count: int
  min_duration_ms: int
  max_duration_ms: int = 0
  min_query_count: int = 1
  max_query_count: int = 0
  target_qps: float | None = None
  target_latency_ms: float | None = None
  equal_issue: bool | None = None

  def __post_init__(self):
    if self.sample_count < 1:
      raise ValueError(
        f'sample_count is {self.sample_count}; it must be at least 1'
      )
    if not 1 <= self.buffer_count <= self.sample_count:
      raise ValueError(
        f'buffer_count is {self.buffer_count}; it must be 1 to'
        f' {self.sample_count}, the number of samples in the set'
      )
    if self.min_duration_ms < 0:
      raise ValueError(
        f'min_duration is {self.min_duration_ms} ms; it must be at least 0 ms'
        f' ({rounds.MIN_DURATION_MS} for an official run)'
      )
    for name in ('target_qps', 'target_latency_ms'):
      value = getattr(self, name)
      if value is not None and not value > 0:
        raise ValueError(f'{name} is {value}; it must be above 0')
    if self.round not in rounds.ROUNDS:
      raise ValueError(
        f'round {self.round!r} is unknown. Available:'
        f' {", ".join(rounds.ROUNDS)}'
      )

  @property
  def rules(self) -> rounds.Round:
    return rounds.ROUNDS[self.round]

  @property
  def issues_equally(self) -> bool:
    """True if all samples are issued equally often."""
    if self.equal_issue is not None:
      return self.equal_issue
    return self.benchmark.must_issue_equally(self.round, self.scenario)

  @property
  def user_conf(self) -> str:
    """The text of user.conf."""
    model, scenario = _in_loadgen(self.benchmark, self.scenario)
    entries: dict[str, object] = {
      'min_duration': self.min_duration_ms,
      'min_query_count': self.min_query_count,
    }
    # Without this setting, LoadGen draws from the whole set. It then logs the
    # benchmark's own sample count for a set of any size. Checkers reject logs
    # with a smaller count, so only a smaller buffer changes it.
    if self.buffer_count < self.sample_count:
      entries['performance_sample_count_override'] = self.buffer_count
    if self.max_duration_ms:
      entries['max_duration'] = self.max_duration_ms
    if self.max_query_count:
      entries['max_query_count'] = self.max_query_count
    if self.target_qps is not None:
      entries['target_qps'] = f'{self.target_qps:.4f}'
    if self.target_latency_ms is not None:
      entries['target_latency'] = f'{self.target_latency_ms:.4f}'
    return ''.join(
      f'{model}.{scenario}.{key} = {value}\n' for key, value in entries.items()
    )

  @property
  def attributes(self) -> Mapping[str, int]:
    """The round's settings outside user.conf, by field of TestSettings.

    LoadGen does not read these from a user.conf. Each version of LoadGen has
    the values of one round.
    """
    attributes = {
      **self.rules.seeds,
      'sample_concatenate_permutation': int(self.issues_equally),
    }
    if self.benchmark.uses_tokens:
      attributes['use_token_latencies'] = 1
    if limits := self.benchmark.token_limits.get(self.scenario):
      attributes |= {
        'ttft_latency': round(limits.ttft_ms * 1e6),
        'tpot_latency': round(limits.tpot_ms * 1e6),
        # Only the latencies of tokens have a bound.
        'server_target_latency_ns': 0,
      }
    return attributes


def reports_first_tokens(
  benchmark: benchmark_lib.Benchmark, scenario: str
) -> bool:
  """Returns True if LoadGen requires the first token of every answer."""
  return benchmark.uses_tokens and not rounds.SCENARIOS[scenario].at_once


def _in_loadgen(
  benchmark: benchmark_lib.Benchmark, scenario: str
) -> tuple[str, str]:
  """Returns LoadGen's own names of the model and the scenario."""
  return (
    benchmark.loadgen_model(scenario),
    rounds.SCENARIOS[scenario].loadgen_name,
  )


def load(
  user_conf: str,
  benchmark: benchmark_lib.Benchmark,
  scenario: str,
  attributes: Mapping[str, int],
) -> 'mlperf_loadgen.TestSettings':
  """Returns LoadGen's settings from a file and from attributes.

  Call this once in a process. LoadGen applies its own defaults of a benchmark
  only to the first settings that a process reads.

  Args:
    user_conf: The path of the file.
    benchmark: The benchmark.
    scenario: The name of the scenario.
    attributes: The value of RunSettings.attributes.
  """
  # pylint: disable=g-import-not-at-top
  import mlperf_loadgen  # Only the process of a run needs it.

  test = mlperf_loadgen.TestSettings()
  model, name = _in_loadgen(benchmark, scenario)
  if test.FromConfig(user_conf, model, name):
    raise ValueError(
      f'LoadGen cannot read {user_conf}. Its log names the line. Fix the lines'
      ' of --user_conf_override_path, or remove the flag.'
    )
  test.scenario = getattr(mlperf_loadgen.TestScenario, name)
  for name, value in attributes.items():
    setattr(test, name, value)
  return test


def target_qps_from_rate(samples_per_second: float) -> float:
  """Returns the target_qps to use after a speed was measured."""
  return samples_per_second * MEASURED_RATE_MARGIN


def target_qps_for_one_pass(sample_count: int, min_duration_ms: int) -> float:
  """Returns the target_qps with which LoadGen issues each article once.

  It is used when no speed is known. It is halved, so that LoadGen's own factor
  of 1.1 does not round up to a second pass.
  """
  return 0.5 * sample_count / (max(min_duration_ms, 1) / 1000)
