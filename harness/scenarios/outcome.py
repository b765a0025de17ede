"""What came out of a job."""

import dataclasses

from harness.loadgen import loadgen_log
from harness.results import comparison as comparison_lib


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The results of a job's runs; None for what was not run."""

  comparison: comparison_lib.Comparison | None
  performance: loadgen_log.RunLog | None

  def problems(self) -> list[str]:
    """Why the job did not pass; empty if it did."""
    problems = self.comparison.problems() if self.comparison else []
    if self.performance and not self.performance.valid:
      problems.append(
        'LoadGen calls the performance run'
        f' {self.performance.values.get("result_validity")}: see its summary;'
        ' if it was shorter than min_duration, give a --target_qps above the'
        ' speed of this machine'
      )
    return problems
