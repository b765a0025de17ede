"""Makes the entry that is kept of a job."""

from collections.abc import Mapping
import os

from harness.description import description
from harness.results import entry as entry_lib
from harness.results import figures
from harness.results import nodes
from harness.scenarios import config as config_lib
from harness.scenarios import outcome as outcome_lib
from harness.scenarios import result_directories
from harness.scenarios import session


class Recorder:
  """Knows what the jobs of one session have in common."""

  def __init__(self, config: config_lib.JobConfig):
    """Looks at this machine and at what the jobs read.

    Args:
      config: of the first of them.

    Raises:
      OSError: an input cannot be read.
      ValueError: the user describes the system by what there cannot be.
    """
    self._hashes = _hashes(
      dict(config.system.inputs) | dict(config.task.inputs)
    )
    overrides = dict(config.system_description)
    if config.system.framework:
      framework = description.framework(config.system.framework)
      overrides = {'framework': framework} | overrides
    self._description = description.describe(config.system_preset, overrides)
    self._versions = description.versions()
    self._governor = description.governor()
    self._began = entry_lib.now()

  def entry(
    self, config: config_lib.JobConfig, outcome: outcome_lib.Outcome
  ) -> entry_lib.Entry:
    """The entry of a scenario that has just ended.

    Raises:
      OSError, ValueError: its logs cannot be read.
    """
    began, self._began = self._began, entry_lib.now()
    return entry_lib.Entry(
      benchmark=config.task.benchmark,
      model=config.model,
      scenario=config.load.scenario,
      round=config.load.round,
      system=config.system.kind,
      parameters=config.parameters,
      command=config.command,
      began=began,
      ended=entry_lib.now(),
      versions=self._versions,
      hashes=self._hashes,
      description=nodes.described(
        self._description, config.system_description, outcome.served
      ),
      governor=self._governor,
      accuracy=_accuracy(outcome),
      performance=_performance(config, outcome),
      energy=outcome.energy,
      notes={
        result_directories.PROBLEMS: outcome.problems(),
        result_directories.PROBES: [str(probe) for probe in outcome.probes],
        entry_lib.SERVED: dict(outcome.served),
      },
    )


def _accuracy(outcome: outcome_lib.Outcome) -> entry_lib.Accuracy | None:
  judgement = outcome.judgement
  if judgement is None:
    return None
  return entry_lib.Accuracy(
    metrics=judgement.metrics,
    line=judgement.line,
    reference=judgement.reference_metrics,
    identical=judgement.identical,
    passed=judgement.passed,
    seconds=outcome.accuracy_seconds,
  )


def _performance(
  config: config_lib.JobConfig, outcome: outcome_lib.Outcome
) -> entry_lib.Performance | None:
  if outcome.performance is None:
    return None
  return figures.performance(
    outcome.performance.directory,
    config.load.scenario,
    os.path.join(
      config.results_dir, session.TIMELINES, f'{config_lib.PERFORMANCE}.csv'
    ),
  )


def _hashes(inputs: Mapping[str, str]) -> dict[str, str]:
  """SHA-256 by role of what lies on this machine."""
  found = {}
  for role, path in inputs.items():
    if os.path.isdir(path):
      found[role] = description.tree_sha256(path)
    elif os.path.isfile(path):
      found[role] = description.file_sha256(path)
  return found
