"""LoadGen settings of a run, as the user.conf that LoadGen reads."""

import dataclasses

MODEL = 'gptj'  # LoadGen's name for the benchmark; selects its own defaults.

# The rules ask for ten minutes of performance run. The default of the demo is
# shorter, because a newcomer wants to see the result of the whole job first.
OFFICIAL_MIN_DURATION_MS = 600_000
DEMO_MIN_DURATION_MS = 10_000

# LoadGen issues target_qps * min_duration * 1.1 samples at once. A guess that
# is too low ends before min_duration and is INVALID, one that is too high only
# takes longer: so the measured speed is stretched before it is used.
MEASURED_RATE_MARGIN = 1.25


@dataclasses.dataclass(frozen=True)
class RunSettings:
  """What user.conf says about one scenario.

  Attributes:
    scenario: LoadGen's scenario name, such as "Offline".
    sample_count: articles in the query sample library; also the smallest
      number of samples issued. LoadGen itself rounds what it issues up to
      whole passes over the library.
    min_duration_ms: shortest valid performance run, in milliseconds.
    target_qps: expected speed in samples/s, from which LoadGen derives how
      much to issue.
  """

  scenario: str
  sample_count: int
  min_duration_ms: int
  target_qps: float

  def __post_init__(self):
    if self.sample_count < 1:
      raise ValueError(f'sample_count is {self.sample_count}; needs at least 1')
    if self.min_duration_ms < 1:
      raise ValueError(
        f'min_duration is {self.min_duration_ms} ms; needs at least 1 ms'
        f' ({OFFICIAL_MIN_DURATION_MS} for an official run)'
      )
    if not self.target_qps > 0:
      raise ValueError(f'target_qps is {self.target_qps}; must be above 0')

  @property
  def user_conf(self) -> str:
    """The text of user.conf."""
    entries = {
      'min_duration': self.min_duration_ms,
      'min_query_count': self.sample_count,
      'performance_sample_count_override': self.sample_count,
      'target_qps': f'{self.target_qps:.4f}',
    }
    return ''.join(
      f'{MODEL}.{self.scenario}.{key} = {value}\n'
      for key, value in entries.items()
    )


def target_qps_from_rate(samples_per_second: float) -> float:
  """The target_qps to use after a speed was measured."""
  return samples_per_second * MEASURED_RATE_MARGIN


def target_qps_for_one_pass(sample_count: int, min_duration_ms: int) -> float:
  """The target_qps with which LoadGen issues each article once.

  For when no speed is known. Halved so that LoadGen's own factor of 1.1 does
  not round up to a second pass.
  """
  return 0.5 * sample_count / (min_duration_ms / 1000)
