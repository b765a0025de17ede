"""A whole job: a system, and the runs of one or more scenarios against it."""

from collections.abc import Iterator, Sequence
import os

from harness.scenarios import config as config_lib
from harness.scenarios import outcome
from harness.scenarios import scenario_run
from harness.scenarios import session as session_lib
from serve import progress as progress_lib


class Job:
  """Runs JobConfigs that share a system, one after the other. Use once."""

  def __init__(
    self,
    configs: Sequence[config_lib.JobConfig],
    progress: progress_lib.Progress,
  ):
    self._configs = configs
    self._progress = progress

  def run(self) -> Iterator[tuple[config_lib.JobConfig, outcome.Outcome]]:
    """Yields each scenario's outcome as soon as it is there.

    Nothing that was started is left when the iteration ends or raises.

    Raises:
      errors.HarnessError: a process, the cell or a run failed.
      SaxError: the cell refused something.
      ValueError: a setting cannot be used.
    """
    first = self._configs[0]
    log_dir = os.path.join(first.results_dir, 'logs')
    with session_lib.started(first.system, log_dir, self._progress) as session:
      for config in self._configs:
        os.makedirs(config.results_dir, exist_ok=True)
        run = scenario_run.ScenarioRun(config, session, self._progress)
        yield config, run.run()
