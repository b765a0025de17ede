"""LoadGen settings of a run: the user.conf that LoadGen reads, and the round."""

from collections.abc import Mapping
import dataclasses
import typing

from harness.rules import rounds

if typing.TYPE_CHECKING:
  import mlperf_loadgen

# The rules ask for ten minutes of performance run. The default of the demo is
# shorter, because a newcomer wants to see the result of the whole job first.
DEMO_MIN_DURATION_MS = 10_000

# LoadGen issues target_qps * min_duration * 1.1 samples at once. A guess that
# is too low ends before min_duration and is INVALID, one that is too high only
# takes longer: so the measured speed is stretched before it is used.
MEASURED_RATE_MARGIN = 1.25


@dataclasses.dataclass(frozen=True)
class RunSettings:
  """What LoadGen is told of one run.

  Attributes:
    benchmark: LoadGen's name of it, which selects its own defaults.
    scenario: LoadGen's scenario name, such as "Offline".
    round: name of the round whose seeds and rules hold.
    sample_count: samples in the set.
    buffer_count: samples of it that LoadGen loads and draws from in a
      performance run; an accuracy run has the whole set.
    min_duration_ms: shortest valid performance run, in milliseconds.
    max_duration_ms: after which a performance run ends; 0: never.
    min_query_count: fewest queries of a performance run (Offline: samples).
      LoadGen itself rounds what it issues up to whole passes over the buffer
      where samples are issued equally.
    max_query_count: most of them; 0: no limit.
    target_qps: Offline: expected speed in samples/s, from which LoadGen derives
      how much to issue. Server: queries/s that are sent.
    target_latency_ms: Server: bound on the latency. SingleStream, MultiStream:
      expected latency of a query, from which LoadGen derives how many.
    equal_issue: whether every sample is issued as often as any other; None: as
      the round's rules say.
  """

  benchmark: str
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
      raise ValueError(f'sample_count is {self.sample_count}; needs at least 1')
    if not 1 <= self.buffer_count <= self.sample_count:
      raise ValueError(
        f'buffer_count is {self.buffer_count}; it must be 1 to'
        f' {self.sample_count}, the samples of the set'
      )
    if self.min_duration_ms < 0:
      raise ValueError(
        f'min_duration is {self.min_duration_ms} ms; needs at least 0 ms'
        f' ({rounds.MIN_DURATION_MS} for an official run)'
      )
    for name in ('target_qps', 'target_latency_ms'):
      value = getattr(self, name)
      if value is not None and not value > 0:
        raise ValueError(f'{name} is {value}; must be above 0')
    if self.round not in rounds.ROUNDS:
      raise ValueError(
        f'round {self.round!r} is not known; choose one of'
        f' {", ".join(rounds.ROUNDS)}'
      )

  @property
  def rules(self) -> rounds.Round:
    return rounds.ROUNDS[self.round]

  @property
  def issues_equally(self) -> bool:
    """Whether every sample is issued as often as any other."""
    if self.equal_issue is not None:
      return self.equal_issue
    return self.rules.must_issue_equally(self.benchmark, self.scenario)

  @property
  def user_conf(self) -> str:
    """The text of user.conf."""
    entries: dict[str, object] = {
      'min_duration': self.min_duration_ms,
      'min_query_count': self.min_query_count,
    }
    # Without it LoadGen logs the benchmark's own count, whatever the set holds,
    # and draws from the whole set: checkers refuse logs with less.
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
      f'{self.benchmark}.{self.scenario}.{key} = {value}\n'
      for key, value in entries.items()
    )

  @property
  def attributes(self) -> Mapping[str, int]:
    """What the round sets besides, by name of the field of TestSettings.

    LoadGen reads these from no user.conf: each of its versions brings the
    values of one round.
    """
    return {
      **self.rules.seeds,
      'sample_concatenate_permutation': int(self.issues_equally),
    }


def load(
  user_conf: str, benchmark: str, scenario: str, attributes: Mapping[str, int]
) -> 'mlperf_loadgen.TestSettings':
  """LoadGen's settings, from the file and the attributes of a RunSettings.

  Only once in a process: LoadGen gives its own defaults of a benchmark to the
  first settings that are read in a process, and to no others.

  Args:
    user_conf: path of the file.
    benchmark: LoadGen's name of it.
    scenario: LoadGen's name of it.
    attributes: RunSettings.attributes.
  """
  # pylint: disable=g-import-not-at-top
  import mlperf_loadgen  # The process that runs no LoadGen needs none.

  test = mlperf_loadgen.TestSettings()
  test.FromConfig(user_conf, benchmark, scenario)
  test.scenario = getattr(mlperf_loadgen.TestScenario, scenario)
  for name, value in attributes.items():
    setattr(test, name, value)
  return test


def target_qps_from_rate(samples_per_second: float) -> float:
  """The target_qps to use after a speed was measured."""
  return samples_per_second * MEASURED_RATE_MARGIN


def target_qps_for_one_pass(sample_count: int, min_duration_ms: int) -> float:
  """The target_qps with which LoadGen issues each article once.

  For when no speed is known. Halved so that LoadGen's own factor of 1.1 does
  not round up to a second pass.
  """
  return 0.5 * sample_count / (max(min_duration_ms, 1) / 1000)
