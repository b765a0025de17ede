"""Defines the outcome of a job."""

from collections.abc import Mapping, Sequence
import dataclasses

from harness.loadgen import loadgen_log
from harness.results import judgement as judgement_lib
from harness.scenarios import load as load_lib


@dataclasses.dataclass(frozen=True)
class Probe:
  """One trial of a search for the highest speed.

  Attributes:
    asked: The speed that LoadGen was set to, in words.
    verdict: The verdict of LoadGen or of the search.
    figure: The measured figure, in words.
  """

  asked: str
  verdict: str
  figure: str

  def __str__(self) -> str:
    return f'asked for {self.asked}: {self.figure}, {self.verdict}'


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The results of a scenario's runs; None for runs that did not take place.

  Attributes:
    judgement: The judgement of the accuracy run.
    accuracy_seconds: The duration of that run.
    performance: The logs of the performance run.
    judged: True if LoadGen's verdict counts. A run of the execution mode test
      is too short for a verdict.
    energy: The energy in joules during the performance run, by meter.
    served: The cell's report of its settings; see launch.Started.
    found: The speed that a search found.
    probes: The trials of the search.
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
    """Returns the reasons why the job did not pass; empty if it passed."""
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
