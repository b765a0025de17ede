"""What came out of a job."""

from collections.abc import Mapping, Sequence
import dataclasses

from harness.loadgen import loadgen_log
from harness.results import judgement as judgement_lib
from harness.scenarios import load as load_lib


@dataclasses.dataclass(frozen=True)
class Probe:
  """One trial of a search for the highest speed.

  Attributes:
    asked: what LoadGen was told, in words.
    verdict: LoadGen's, or ours.
    figure: what was measured, in words.
  """

  asked: str
  verdict: str
  figure: str

  def __str__(self) -> str:
    return f'asked for {self.asked}: {self.figure}, {self.verdict}'


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The results of a scenario's runs; None for what was not run.

  Attributes:
    judgement: of the accuracy run.
    accuracy_seconds: how long that run lasted.
    performance: logs of the performance run.
    judged: whether LoadGen's verdict counts; not that of a run of the
      execution mode test, which is too short for any.
    energy: joules by meter during the performance run.
    served: what a cell says that it serves; see launch.Started.
    found: the speed that a search found.
    probes: what the search tried.
  """

  judgement: judgement_lib.Judgement | None = None
  accuracy_seconds: float = 0.0
  performance: loadgen_log.RunLog | None = None
  judged: bool = True
  energy: Mapping[str, float] = dataclasses.field(default_factory=dict)
  served: Mapping[str, object] = dataclasses.field(default_factory=dict)
  found: load_lib.Speed | None = None
  probes: Sequence[Probe] = ()

  def problems(self) -> list[str]:
    """Why the job did not pass; empty if it did."""
    problems = self.judgement.problems() if self.judgement else []
    if not (self.performance and self.judged):
      return problems
    if self.performance.problems:
      problems.append(
        f'LoadGen logged {len(self.performance.problems)} errors in the'
        f' performance run, the first of them: {self.performance.problems[0]}'
        f' (all in {self.performance.directory})'
      )
    elif not self.performance.valid:
      problems.append(
        'LoadGen calls the performance run'
        f' {self.performance.values.get("result_validity")}: see its summary'
        ' for why and for what it recommends (--target_qps,'
        ' --target_latency_ms, --min_duration, or --mode=find_performance)'
      )
    return problems
