"""What a job is to do."""

from collections.abc import Mapping
import dataclasses

from harness.data import summarization
from harness.loadgen import settings
from harness.systems import target as target_lib

ACCURACY = 'accuracy'
PERFORMANCE = 'performance'


@dataclasses.dataclass(frozen=True)
class JobConfig:
  """What to run.

  Attributes:
    scenario: LoadGen's scenario name.
    modes: ACCURACY, PERFORMANCE or both.
    results_dir: where logs and the report go.
    target: model of a running cell; None starts a cell.
    params: name of the serving params of a model in a cell of our own.
    overrides: attribute of those params -> value as JSON.
    checkpoint: PAX checkpoint directory of that model; None takes the bundled
      model's.
    jax_cache_dir: where its server keeps compiled programs; None: nowhere.
    source: the articles.
    reference_path: recorded reference; None compares with nothing.
    rouge_tolerance: greatest difference from it that passes.
    require_identical: whether every answer must be the reference's; None: if
      the model is served in float32.
    min_duration_ms: shortest valid performance run.
    target_qps: expected samples/s; None takes the accuracy run's speed.
    concurrency: most unanswered requests.
    silence_secs: time without any answer that ends a run.
  """

  scenario: str
  modes: tuple[str, ...]
  results_dir: str
  target: target_lib.Target | None
  params: str
  overrides: Mapping[str, str]
  checkpoint: str | None
  jax_cache_dir: str | None
  source: summarization.Source
  reference_path: str | None
  rouge_tolerance: float
  require_identical: bool | None
  min_duration_ms: int
  target_qps: float | None
  concurrency: int
  silence_secs: float

  def run_settings(self, sample_count: int) -> settings.RunSettings:
    """LoadGen's settings for so many articles, before a speed is known."""
    return settings.RunSettings(
      scenario=self.scenario,
      sample_count=sample_count,
      min_duration_ms=self.min_duration_ms,
      target_qps=self.target_qps
      or settings.target_qps_for_one_pass(sample_count, self.min_duration_ms),
    )
