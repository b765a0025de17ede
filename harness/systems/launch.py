"""Defines the systems that answer: their settings, and how a job starts them.

The flags describe a system, and run.json contains it. The program of a LoadGen
run makes a `loadgen.system.System` from it.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
from typing import Any, ClassVar, Protocol

import msgspec

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.network import client
from harness.systems import served
from saxml_ext.common.machine import accelerators
from serve import children
from serve import local_cell
from serve import programs
from serve import progress as progress_lib

NETWORK = 'network'
LON_RUN = 'harness/network/lon_run'
FLOAT32 = (None, 'float32', 'fp32')


@dataclasses.dataclass(frozen=True)
class Workspace:
  """The resources with which a job starts a system.

  Attributes:
    group: The processes of the job.
    work_dir: An existing directory that is removed with the job.
    log_dir: The directory for one log per process.
    progress: The output for progress messages.
  """

  group: children.Children
  work_dir: str
  log_dir: str
  progress: progress_lib.Progress


@dataclasses.dataclass(frozen=True)
class Started:
  """A system that can answer.

  Attributes:
    program: The program that runs LoadGen against the system.
    system: The system as that program reads it from run.json.
    exact: True if the system computes in float32, as the reference does.
    served: The cell's report of the model: "params", "overrides", "checkpoint",
      and "groups" of hosts if it has any. It is empty if the parameters of the
      system have the same information.
    slots: The number of samples that it computes together; 0: unknown.
    other_search: The difference between its search and the reference's; '' if
      they are equal or the search is unknown.
    streams: True if it can report first tokens; None: unknown.
  """

  program: str
  system: Any
  exact: bool
  served: Mapping[str, object] = dataclasses.field(default_factory=dict)
  slots: int = 0
  other_search: str = ''
  streams: bool | None = None


class System(Protocol):
  """A system that is not yet started."""

  @property
  def kind(self) -> str:
    """The name in results: cell, reference, engine, ..."""

  @property
  def framework(self) -> str:
    """The package that computes: jax, torch or onnxruntime; "": unknown."""

  @property
  def parameters(self) -> Mapping[str, object]:
    """The settings that decide a result."""

  @property
  def inputs(self) -> Mapping[str, str]:
    """The paths of the files that decide a result, by role."""

  def start(self, workspace: Workspace) -> Started:
    """Starts the processes that the run needs; they end with the job's group.

    Raises:
      errors.HarnessError: A process or the cell failed.
      SaxError: The cell rejected a request.
    """


class Settings(  # type: ignore[call-arg]
  msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=str.lower
):
  """The base of systems. In run.json, the field "type" has the class."""


class RunningCell(Settings):
  """A model of a cell that already runs.

  Attributes:
    model_path: The id of the model, /sax/<cell>/<model>.
    sax_root: The root directory of the cell's files.
    stream: True if answers are streamed, to time their first tokens.
    network: 'lon' if LoadGen logs the servers as a Network SUT; else ''.
    benchmark: LoadGen's name of the benchmark.
  """

  model_path: str
  sax_root: str = ''
  stream: bool = False
  network: str = ''
  benchmark: str = ''
  framework = 'jax'
  program = programs.LOADGEN_RUN
  inputs: ClassVar[Mapping[str, str]] = {}

  def __post_init__(self) -> None:
    if self.network not in ('', 'lon'):
      raise ValueError(
        f'--network={self.network} is not for cells. Use --network=lon'
      )

  @property
  def kind(self) -> str:
    return NETWORK if self.network else 'cell'

  @property
  def parameters(self) -> Mapping[str, object]:
    network = {'network': self.network} if self.network else {}
    return {
      'model_id': self.model_path,
      'sax_root': self.sax_root,
      'stream': self.stream,
      **network,
    }

  def start(self, workspace: Workspace) -> Started:
    workspace.progress.stage(f'using {self.model_path} of a running cell')
    return self.answering()

  def answering(self) -> Started:
    """Requests the description of the model from the admin server."""
    model = served.ask(self.model_path, self.sax_root)
    return Started(
      self.program,
      self,
      model.is_float32,
      dataclasses.asdict(model),
      model.slots,
      model.other_search(benchmarks.get(self.benchmark).search),
      model.streams,
    )


class _Served(Settings):
  """A model that this machine serves with serving params.

  Attributes:
    params: The name of the serving params; '': those of the bundled model.
    overrides: The JSON values of changed attributes, by name of the attribute.
    checkpoint: The PAX checkpoint directory; None: the bundled model's.
    jax_cache_dir: The directory for compiled programs; None: none are kept.
    benchmark: LoadGen's name of the benchmark.
  """

  params: str = ''
  overrides: dict[str, str] = {}
  checkpoint: str | None = None
  jax_cache_dir: str | None = None
  benchmark: str = ''
  framework = 'jax'

  def __post_init__(self) -> None:
    if not self.params:
      msgspec.structs.force_setattr(self, 'params', self._bundle.params)

  @property
  def _bundle(self) -> benchmark_lib.Bundle:
    return benchmarks.get(self.benchmark).bundle

  @property
  def parameters(self) -> Mapping[str, object]:
    return {'params': self.params, 'overrides': dict(self.overrides)}

  @property
  def inputs(self) -> Mapping[str, str]:
    return {'checkpoint': self.checkpoint or self._bundle.model}

  @property
  def program_set(self) -> str | None:
    """The path of programs that were compiled ahead of time; None: none."""
    bundle = self._bundle
    return bundle.programs if self.params == bundle.params else None

  def _pax_checkpoint(self, workspace: Workspace) -> str:
    """Returns the PAX checkpoint; converts the bundled model if necessary."""
    if idle := accelerators.idle():
      workspace.progress.stage(f'warning: {idle}')
    if self.checkpoint and os.path.isdir(self.checkpoint):
      path = self.checkpoint.rstrip('/')
      names = [os.path.basename(path), *os.listdir(path)]
      if not any(name.startswith('checkpoint_') for name in names):
        raise ValueError(
          f'{path} is not a PAX checkpoint, because it has no directory'
          ' checkpoint_<step>. Convert a Hugging Face directory with:'
          f' ./bazelw run //converters:convert_hf -- --base={path}'
          f' --pax={path}-pax'
        )
    if checkpoint := self.checkpoint or self._bundle.pax:
      return checkpoint
    workspace.progress.stage('converting the bundled model to a PAX checkpoint')
    target = os.path.join(workspace.work_dir, 'pax')
    command = programs.command(
      programs.CONVERTER, {'base': self._bundle.model, 'pax': target}
    )
    log = os.path.join(workspace.log_dir, 'convert_hf.log')
    workspace.group.run('converter', command, log)
    return target


class OwnCell(_Served):
  """A cell that the job starts on this machine.

  Attributes:
    hosts: The number of model server processes. Each stands for one host.
  """

  hosts: int = 1
  kind = 'cell'
  program = programs.LOADGEN_RUN

  @property
  def parameters(self) -> Mapping[str, object]:
    # The value 1 is left out, so that results from before the flag keep their
    # ids.
    hosts = {'hosts': self.hosts} if self.hosts > 1 else {}
    return {**_Served.parameters.fget(self), **hosts}  # type: ignore[attr-defined]

  def start(self, workspace: Workspace) -> Started:
    checkpoint = self._pax_checkpoint(workspace)
    cell = local_cell.LocalCell(
      workspace.group,
      workspace.work_dir,
      workspace.log_dir,
      self.jax_cache_dir,
      workspace.progress,
      # The build's programs are for one process and one device.
      program_set=self.program_set if self.hosts == 1 else None,
      hosts=self.hosts,
    )
    cell.start()
    model_id = cell.publish(
      local_cell.Model(
        benchmarks.get(self.benchmark).family,
        self.params,
        checkpoint,
        self.overrides,
      )
    )
    return RunningCell(
      model_id, cell.sax_root, benchmark=self.benchmark
    ).answering()


class Engine(_Served):
  """The engine in LoadGen's own process, without a cell.

  Attributes:
    programs: The directories of program sets that were compiled ahead of time.
    programs_mismatch: The action if a set does not match: refuse or compile.
    programs_cache: The directory for programs that are compiled.
  """

  program = programs.ENGINE_RUN  # The next line hides the module.
  programs: Sequence[str] = ()
  programs_mismatch: str = 'refuse'
  programs_cache: str = ''
  kind = 'engine'

  def start(self, workspace: Workspace) -> Started:
    system = msgspec.structs.replace(
      self, checkpoint=self._pax_checkpoint(workspace)
    )
    # Overrides and another checkpoint also work in the engine, as in the cell,
    # because programs that do not match are compiled.
    if directory := self.program_set:
      system = msgspec.structs.replace(
        system, programs=[directory], programs_mismatch='compile'
      )
    model = served.Served(self.params, self.overrides)
    return Started(
      self.program,
      system,
      model.is_float32,
      slots=model.slots,
      other_search=model.other_search(benchmarks.get(self.benchmark).search),
    )


class Reference(Settings):
  """The reference implementation: transformers on PyTorch.

  Attributes:
    checkpoint: The Hugging Face directory; None: the bundled model.
    device: The device, such as "cpu" or "cuda".
    precision: The number format; None: "float32".
    beam_size: The number of beams of the search; None: that of the benchmark,
      or that of the environment variable.
    batch_size: The maximum number of samples that are computed together.
    benchmark: LoadGen's name of the benchmark.
  """

  checkpoint: str | None = None
  device: str = 'cpu'
  precision: str | None = None
  beam_size: int | None = None
  batch_size: int = 1
  benchmark: str = ''
  kind = 'reference'
  framework = 'torch'
  program = programs.REFERENCE_RUN

  @property
  def parameters(self) -> Mapping[str, object]:
    return {
      'device': self.device,
      'precision': self.precision or 'float32',
      'beam_size': self.beam_size or self._usual_beams,
      'batch_size': self.batch_size,
    }

  @property
  def _usual_beams(self) -> str | None:
    """The number of beams in the environment; None: that of the benchmark."""
    return os.environ.get(benchmarks.get(self.benchmark).beam_variable)

  @property
  def inputs(self) -> Mapping[str, str]:
    bundle = benchmarks.get(self.benchmark).bundle
    return {'checkpoint': self.checkpoint or bundle.model}

  def start(self, workspace: Workspace) -> Started:
    workspace.progress.stage(
      f'using the reference implementation on {self.device}'
    )
    usual = benchmarks.get(self.benchmark).search.beams
    beams = self.parameters['beam_size'] or usual
    return Started(
      self.program,
      self,
      self.precision in FLOAT32,
      slots=self.batch_size,
      other_search=''
      if str(beams) == str(usual)
      else f'beam_size={beams} (reference: {usual})',
    )


class NetworkSut(client.Nodes, tag=NETWORK):  # type: ignore[call-arg]
  """The nodes that already run `harness.network.query_server`."""

  framework = ''
  inputs: ClassVar[Mapping[str, str]] = {}
  kind = NETWORK
  program = LON_RUN

  @property
  def parameters(self) -> Mapping[str, object]:
    return {
      'sut_server': ','.join(self.sut_server),
      'connections': self.connections,
    }

  def start(self, workspace: Workspace) -> Started:
    workspace.progress.stage(
      f'using the systems at {", ".join(self.sut_server)}'
    )
    return Started(self.program, self, exact=False)
