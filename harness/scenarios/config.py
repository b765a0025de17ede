"""What a job is to do."""

from collections.abc import Mapping
import dataclasses

from harness.results import entry
from harness.scenarios import load as load_lib
from harness.scenarios import tasks
from harness.systems import launch

ACCURACY = 'accuracy'
PERFORMANCE = 'performance'
FIND_PERFORMANCE = 'find_performance'
COMPLIANCE = 'compliance'
MODES = (ACCURACY, PERFORMANCE, FIND_PERFORMANCE, COMPLIANCE)


@dataclasses.dataclass(frozen=True)
class JobConfig:
  """One scenario of a benchmark on a system.

  Attributes:
    model: as it is submitted: gptj-99, gptj-99.9, bert-99 or bert-99.9.
    modes: of MODES, those to run.
    results_dir: where logs, the report and the entry go; '' until the job
      begins.
    targets_path: file that keeps what FIND_PERFORMANCE found; None: nowhere.
    system: what answers.
    task: the samples and their judge.
    load: what LoadGen is asked.
    command: what the user typed, word by word.
    system_preset: name of a known system that this is; None: this machine.
    system_description: what the user says of the system, by key of the
      official description.
  """

  model: str
  modes: tuple[str, ...]
  results_dir: str
  targets_path: str | None
  system: launch.Launcher
  task: tasks.Task
  load: load_lib.Load
  command: tuple[str, ...] = ()
  system_preset: str | None = None
  system_description: Mapping[str, object] = dataclasses.field(
    default_factory=dict
  )

  @property
  def parameters(self) -> Mapping[str, object]:
    """All that decides the result, besides what an entry has as fields."""
    return {
      'modes': list(self.modes),
      'system': dict(self.system.parameters) | dict(self.system.inputs),
      'task': dict(self.task.parameters) | dict(self.task.inputs),
      'load': dict(self.load.parameters),
    }

  @property
  def id(self) -> str:
    """The id of the entry that it makes."""
    return entry.make_id(
      self.task.benchmark,
      self.model,
      self.load.scenario,
      self.load.round,
      self.system.kind,
      self.parameters,
    )

  @property
  def targets_key(self) -> str:
    """Under which a speed that was found is kept: the system and the samples.

    Not how long was measured, nor by which round's seeds.
    """
    return entry.make_id(
      self.task.benchmark,
      '',
      self.load.scenario,
      '',
      self.system.kind,
      {
        'system': dict(self.system.parameters) | dict(self.system.inputs),
        'task': dict(self.task.parameters) | dict(self.task.inputs),
        'bound_ms': None if self.load.streams else self.load.target_latency_ms,
        'concurrency': self.load.concurrency,
      },
    )
