"""Systems as a job sees them: what is started, and what runs LoadGen."""

from collections.abc import Mapping
import dataclasses
import os
from typing import Protocol

from harness.data import bundle
from harness.loadgen import target as target_lib
from harness.rules import requirements
from harness.systems import served
from saxml_ext.common.machine import accelerators
from serve import children
from serve import local_cell
from serve import programs
from serve import progress as progress_lib

# What a model in a cell of our own is called there.
_MODEL = 'gptj'


@dataclasses.dataclass(frozen=True)
class Workplace:
  """What a job gives a system that starts.

  Attributes:
    group: gets its processes.
    work_dir: existing directory that goes away with the job.
    log_dir: gets a log per process.
    progress: where the user is told what happens.
  """

  group: children.Children
  work_dir: str
  log_dir: str
  progress: progress_lib.Progress


class Launcher(Protocol):
  """A system, not yet started."""

  @property
  def kind(self) -> str:
    """What results call it: cell, reference, engine, ..."""

  @property
  def framework(self) -> str:
    """The package that computes: jax, torch or onnxruntime; "": not known."""

  @property
  def parameters(self) -> Mapping[str, object]:
    """What of it decides a result."""

  @property
  def inputs(self) -> Mapping[str, str]:
    """Path by role of the files that decide a result."""

  def start(self, place: Workplace) -> 'Started':
    """Starts what must run beside LoadGen; it ends with the workplace's group.

    Raises:
      errors.HarnessError: a process or the cell failed.
      SaxError: the cell refused something.
    """


@dataclasses.dataclass(frozen=True)
class Started:
  """A system that answers.

  Attributes:
    program: the program that runs LoadGen against it.
    flags: its flags, apart from those of LoadGen and of the samples.
    exact: whether it computes in float32, as the reference does.
    served: what a cell says that it serves: "params" and "overrides", its
      "checkpoint", and its "groups" of hosts, if it has any; empty where the
      system's parameters say it.
    slots: samples that it computes together; 0: not known.
    other_search: how its search differs from the reference's; '' if it does
      not, or is not known.
  """

  program: str
  flags: Mapping[str, object]
  exact: bool
  served: Mapping[str, object] = dataclasses.field(default_factory=dict)
  slots: int = 0
  other_search: str = ''


@dataclasses.dataclass(frozen=True)
class RunningCell:
  """A model of a cell that runs already.

  Attributes:
    target: the model.
    stream: whether answers are streamed, so that first tokens are seen.
  """

  target: target_lib.Target
  stream: bool = False
  kind = 'cell'
  framework = 'jax'

  @property
  def parameters(self) -> Mapping[str, object]:
    return dataclasses.asdict(self.target) | {'stream': self.stream}

  @property
  def inputs(self) -> Mapping[str, str]:
    return {}

  def start(self, place: Workplace) -> Started:
    place.progress.stage(f'using {self.target.model_id} of a running cell')
    started = _of_cell(self.target)
    flags = dict(started.flags) | {'stream': self.stream}
    return dataclasses.replace(started, flags=flags)


@dataclasses.dataclass(frozen=True)
class Served:
  """A model under serving params, on this machine.

  Attributes:
    params: name of the serving params.
    overrides: attribute of those params -> value as JSON.
    checkpoint: PAX checkpoint directory; None takes the bundled model's.
    jax_cache_dir: where compiled programs are kept; None: nowhere.
  """

  params: str
  overrides: Mapping[str, str]
  checkpoint: str | None
  jax_cache_dir: str | None
  framework = 'jax'

  @property
  def parameters(self) -> Mapping[str, object]:
    return {'params': self.params, 'overrides': dict(self.overrides)}

  @property
  def inputs(self) -> Mapping[str, str]:
    return {'checkpoint': self.checkpoint or bundle.model_dir()}

  @property
  def program_set(self) -> str | None:
    """Programs that were compiled ahead of time; None: there are none."""
    return bundle.programs() if self.params == bundle.PARAMS else None


@dataclasses.dataclass(frozen=True)
class OwnCell(Served):
  """A cell of our own on this machine.

  Attributes:
    hosts: processes that compute its model together, as so many hosts do.
  """

  hosts: int = 1
  kind = 'cell'

  @property
  def parameters(self) -> Mapping[str, object]:
    # One host is not told: results from before there was a choice stay known.
    return dict(super().parameters) | (
      {'hosts': self.hosts} if self.hosts > 1 else {}
    )

  def start(self, place: Workplace) -> Started:
    _tell_what_is_idle(place)
    checkpoint = pax_checkpoint(self.checkpoint, place)
    cell = local_cell.LocalCell(
      place.group,
      place.work_dir,
      place.log_dir,
      self.jax_cache_dir,
      place.progress,
      program_set=self.program_set,
      hosts=self.hosts,
    )
    cell.start()
    model_id = cell.publish(
      local_cell.Model(_MODEL, self.params, checkpoint, self.overrides)
    )
    return _of_cell(target_lib.Target(model_id, cell.sax_root))

  @property
  def program_set(self) -> str | None:
    # The build's programs are for one process and one device.
    return super().program_set if self.hosts == 1 else None


@dataclasses.dataclass(frozen=True)
class Engine(Served):
  """The engine in LoadGen's own process, without a cell."""

  kind = 'engine'

  def start(self, place: Workplace) -> Started:
    _tell_what_is_idle(place)
    flags = {
      'params': self.params,
      'checkpoint': pax_checkpoint(self.checkpoint, place),
      'override': [f'{name}={self.overrides[name]}' for name in self.overrides],
      'jax_cache_dir': self.jax_cache_dir,
    }
    # As in the cell, overrides and another checkpoint work all the same.
    if self.program_set is not None:
      flags |= {'programs': self.program_set, 'programs_mismatch': 'compile'}
    model = served.Served(self.params, self.overrides)
    return Started(
      programs.ENGINE_RUN,
      flags,
      model.is_float32,
      slots=model.slots,
      other_search=model.other_search,
    )


@dataclasses.dataclass(frozen=True)
class Reference:
  """The reference implementation: transformers on PyTorch.

  Attributes:
    checkpoint: Hugging Face directory; None takes the bundled model.
    device: such as "cpu" or "cuda".
    precision: number format, such as "float32"; None: that one.
    beam_size: beams of the search; None: $GPTJ_BEAM_SIZE, or 4.
    batch_size: most samples computed together.
  """

  checkpoint: str | None = None
  device: str = 'cpu'
  precision: str | None = None
  beam_size: int | None = None
  batch_size: int = 1
  kind = 'reference'
  framework = 'torch'

  @property
  def parameters(self) -> Mapping[str, object]:
    return {
      'device': self.device,
      'precision': self.precision or 'float32',
      'beam_size': self._beams,
      'batch_size': self.batch_size,
    }

  @property
  def _beams(self) -> int | str | None:
    return self.beam_size or os.environ.get('GPTJ_BEAM_SIZE')

  @property
  def inputs(self) -> Mapping[str, str]:
    return {'checkpoint': self.checkpoint or bundle.model_dir()}

  def start(self, place: Workplace) -> Started:
    place.progress.stage(f'using the reference implementation on {self.device}')
    return Started(
      programs.REFERENCE_RUN,
      {
        'checkpoint': self.checkpoint,
        'device': self.device,
        'precision': self.precision,
        'beam_size': self.beam_size,
        'batch_size': self.batch_size,
      },
      self.precision in (None, 'float32', 'fp32'),
      slots=self.batch_size,
      other_search=''
      if str(self._beams or requirements.BEAM_SIZE)
      == str(requirements.BEAM_SIZE)
      else f'beam_size={self._beams} (reference: {requirements.BEAM_SIZE})',
    )


def pax_checkpoint(path: str | None, place: Workplace) -> str:
  """A PAX checkpoint; the bundled model's, converted if need be, without one."""
  if found := path or bundle.pax_checkpoint():
    return found
  place.progress.stage('converting the bundled model to a PAX checkpoint')
  target = os.path.join(place.work_dir, 'pax')
  command = programs.command(
    programs.CONVERTER, {'base': bundle.model_dir(), 'pax': target}
  )
  log = os.path.join(place.log_dir, 'convert_gptj_ckpt.log')
  place.group.run('converter', command, log)
  return target


def _tell_what_is_idle(place: Workplace) -> None:
  """Tells of an accelerator that JAX will not use; the log has it too."""
  if told := accelerators.idle():
    place.progress.stage(f'warning: {told}')


def _of_cell(target: target_lib.Target) -> Started:
  model = served.ask(target)
  return Started(
    programs.LOADGEN_RUN,
    {'model_path': target.model_id, 'sax_root': target.sax_root},
    model.is_float32,
    dataclasses.asdict(model),
    model.slots,
    model.other_search,
  )
