"""Defines a job: one scenario of a benchmark on a system, set by the flags."""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import re
import sys
from typing import Any

from absl import flags

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.caching import cache as cache_lib
from harness.description import description
from harness.loadgen import run as run_lib
from harness.loadgen import settings
from harness.results import entry
from harness.rules import requirements
from harness.rules import rounds
from harness.scenarios import flag_table
from harness.scenarios import load as load_lib
from harness.scenarios import tasks
from harness.systems import bert_systems
from harness.systems import launch
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import kvstore
from saxml_ext.common import user_path
from saxml_ext.common.security import tls_flags
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides as overrides_lib
from serve import local_cell

# The file that keeps the speeds that find_performance found.
_TARGETS = 'targets.json'

# The class of each system. The flags of the same names fill its fields.
KINDS: Mapping[str, type[Any]] = {
  flag_table.RUNNING_CELL: launch.RunningCell,
  flag_table.OWN_CELL: launch.OwnCell,
  flag_table.ENGINE: launch.Engine,
  flag_table.REFERENCE: launch.Reference,
  flag_table.NETWORK: launch.NetworkSut,
  bert_systems.OnnxRuntimeBert.kind: bert_systems.OnnxRuntimeBert,
  bert_systems.TorchBert.kind: bert_systems.TorchBert,
}

MODEL = flags.DEFINE_enum(
  'model',
  next(iter(benchmarks.DEFAULT.models)),
  list(benchmarks.MODELS),
  'The benchmark and its accuracy target, by the name in submissions.',
)
RESULTS_DIR = flags.DEFINE_string(
  'results_dir',
  None,
  'The directory for logs and the report. Default: a new directory in the'
  ' results of --cache_dir.',
)
RERUN = flags.DEFINE_bool(
  'rerun',
  False,
  'Run the job again, even if a result with the same parameters is stored.',
)
_SYSTEM = flags.DEFINE_enum(
  'system',
  None,
  sorted({*KINDS} - {flag_table.RUNNING_CELL}),
  'The system that answers. GPT-J and Llama: cell (the default), a Sax cell'
  ' that the job starts unless --model_path names a model of a running cell;'
  " engine, the cell's engine in LoadGen's process; reference, transformers on"
  ' PyTorch.'
  ' BERT: onnxruntime (the default) or pytorch. All but the cell run only in'
  ' //harness:main.',
)
_HOSTS = flags.DEFINE_integer(
  'hosts',
  1,
  'The number of processes of the model server in the cell that the job'
  ' starts. Several processes compute the model together, like a group of as'
  ' many hosts. They use the CPU unless JAX_PLATFORMS is set.',
  lower_bound=1,
)
_SYSTEM_PRESET = flags.DEFINE_string(
  'system_preset',
  None,
  'The name of the known system that runs the job, such as tpu_v5e_x4.'
  ' `//harness:system presets` lists them. Default: this machine, with'
  ' detected values.',
)
_SYSTEM_DESCRIPTION = flags.DEFINE_string(
  'system_description',
  None,
  'A YAML or JSON file with values that cannot be detected, by key of the'
  ' official description. `//harness:system keys` lists the keys.',
)
CATEGORY = flags.DEFINE_enum(
  'category',
  None,
  requirements.CATEGORIES,
  'The category of the system, which becomes system_type in its description.',
)
DIVISION = flags.DEFINE_enum(
  'division',
  None,
  requirements.DIVISIONS,
  'The division of the result, for the description of its system.',
)


@dataclasses.dataclass(frozen=True)
class Job:
  """A job: one scenario of a benchmark on a system.

  Attributes:
    model: The submitted name of the model, from benchmarks.MODELS.
    modes: The modes to run, from load.MODES.
    results_dir: The directory for logs, report and entry; '' until the job
      begins.
    targets_path: The file that keeps the speeds that find_performance found;
      None: no file keeps them.
    system: The system that answers.
    task: The samples and their judge.
    load: The load that LoadGen generates.
    command: The words of the user's command line.
    system_preset: The name of the known system that runs the job; None: this
      machine.
    system_description: The user's description of the system, by key of the
      official description.
  """

  model: str
  modes: tuple[str, ...]
  results_dir: str
  targets_path: str | None
  system: launch.System
  task: tasks.Task
  load: load_lib.Load
  command: tuple[str, ...] = ()
  system_preset: str | None = None
  system_description: Mapping[str, object] = dataclasses.field(
    default_factory=dict
  )

  @property
  def _subject(self) -> Mapping[str, object]:
    """The settings of the system and the samples that are measured."""
    return {
      'system': dict(self.system.parameters) | dict(self.system.inputs),
      'task': dict(self.task.parameters) | dict(self.task.inputs),
    }

  @property
  def parameters(self) -> Mapping[str, object]:
    """All settings that decide the result, except the fields of an entry."""
    return {
      'modes': list(self.modes),
      **self._subject,
      'load': dict(self.load.parameters),
    }

  @property
  def id(self) -> str:
    """The id of the entry of this job's result."""
    return self._id(self.model, self.load.round, self.parameters)

  @property
  def targets_key(self) -> str:
    """The key of a found speed: the system and the samples.

    The duration of the measurement and the seeds of the round are not part of
    it.
    """
    bound = None if self.load.streams else self.load.target_latency_ms
    return self._id(
      '',
      '',
      {
        **self._subject,
        'bound_ms': bound,
        'concurrency': self.load.concurrency,
      },
    )

  def _id(
    self, model: str, round_name: str, parameters: Mapping[str, object]
  ) -> str:
    return entry.make_id(
      self.task.benchmark.name,
      model,
      self.load.scenario,
      round_name,
      self.system.kind,
      parameters,
    )


def jobs(
  scenarios: Sequence[str],
) -> tuple[cache_lib.Cache, str | None, list[Job]]:
  """Returns the jobs that the flags describe, one per scenario.

  Args:
    scenarios: LoadGen's names of the scenarios.

  Returns:
    The cache, the directory that the user chose for results, and the jobs.

  Raises:
    OSError, ValueError, errors.SaxError: The value of a flag cannot be used.
  """
  modes = run_lib.MODE.value
  if set(modes) - set(load_lib.MODES) or not modes:
    raise ValueError(
      f'--mode={",".join(modes)} must be one or more of'
      f' {", ".join(load_lib.MODES)}, separated by commas'
    )
  model = MODEL.value
  benchmark = benchmarks.MODELS[model]
  system_kind = kind(benchmark)
  flag_table.check(
    flag_table.Run(system_kind, scenarios, modes, load_lib.EXECUTION_MODE.value)
  )
  round_name = load_lib.round_name(benchmark)
  _check_scenarios(scenarios, benchmark, system_kind)
  flag_table.check_included(
    system_kind, KINDS[system_kind].program, scenarios, MODEL.value
  )
  if not rounds.is_at_least(round_name, benchmark.first_round):
    raise ValueError(
      f'--round={round_name} has no {model}. It is in {benchmark.first_round}'
      ' and later'
    )
  tests = benchmark.compliance_tests(round_name)
  if load_lib.COMPLIANCE in modes and not tests:
    raise ValueError(
      f'--mode={load_lib.COMPLIANCE}: {model} has no compliance tests in'
      f' {round_name}'
    )
  results_dir = user_path.resolve(RESULTS_DIR.value)
  cache = cache_lib.get(results_dir).create()
  system = _system(system_kind, benchmark, cache)
  task = tasks.task(model, system)
  described = {}
  if _SYSTEM_DESCRIPTION.value:
    described = description.read_file(
      user_path.resolve(_SYSTEM_DESCRIPTION.value)
    )
  for key, flag in (('system_type', CATEGORY), ('division', DIVISION)):
    if flag.value:
      described[key] = flag.value
  return (
    cache,
    results_dir,
    [
      Job(
        model=model,
        modes=tuple(modes),
        results_dir='',
        targets_path=os.path.join(cache.results, _TARGETS),
        system=system,
        task=task,
        load=load_lib.from_flags(
          scenario,
          benchmark,
          watched=system_kind != flag_table.RUNNING_CELL,
          serves=system_kind in flag_table.SERVING,
        ),
        command=tuple(sys.argv),
        system_preset=_SYSTEM_PRESET.value,
        system_description=described,
      )
      for scenario in scenarios
    ],
  )


def kind(benchmark: benchmark_lib.Benchmark) -> str:
  """Returns the system that the flags select, one of flag_table.SYSTEMS.

  Args:
    benchmark: The benchmark.

  Raises:
    ValueError: The system does not support the benchmark.
  """
  kinds = benchmark.systems
  system_kind = _SYSTEM.value or kinds[0]
  if system_kind not in kinds:
    raise ValueError(
      f'--system={system_kind} does not support {benchmark.name}. Available:'
      f' {", ".join(kinds)}'
    )
  if system_kind == flag_table.OWN_CELL and run_lib.MODEL_PATH.value:
    return flag_table.RUNNING_CELL
  return system_kind


def _check_scenarios(
  scenarios: Sequence[str], benchmark: benchmark_lib.Benchmark, system_kind: str
) -> None:
  """Checks that a benchmark and a system can run in scenarios.

  Raises:
    ValueError: They cannot. The message names the remedy.
  """
  name, known = MODEL.value, benchmark.scenarios
  for scenario in scenarios:
    if scenario not in known:
      raise ValueError(
        f'--model={name} has no scenario {scenario}. Available:'
        f' {", ".join(known)}'
      )
    if system_kind == flag_table.REFERENCE and settings.reports_first_tokens(
      benchmark, scenario
    ):
      raise ValueError(
        f'--system={system_kind} does not report first tokens, which LoadGen'
        f' measures in {scenario} of {name}. Use --system=cell or'
        f' --system=engine, or --scenario={rounds.OFFLINE}'
      )


def _system(
  system_kind: str, benchmark: benchmark_lib.Benchmark, cache: cache_lib.Cache
) -> launch.System:
  """Returns the system that the flags describe.

  Args:
    system_kind: The system that `kind` returned.
    benchmark: The benchmark.
    cache: The cache, for files whose path no flag sets.

  Raises:
    ValueError, errors.SaxError: The value of a flag cannot be used.
  """
  try:
    tls_flags.export()  # For the programs that are started.
  except errors.SaxError as e:
    raise ValueError(e.message) from e
  checkpoint = user_path.resolve(run_lib.CHECKPOINT.value or '.')
  if not kvstore.is_url(checkpoint) and not os.path.exists(checkpoint):
    raise ValueError(
      f'--checkpoint={checkpoint} does not exist. Pass the path of a checkpoint,'
      ' or remove the flag to use the bundled model'
    )
  values: dict[str, object] = {}
  if system_kind == flag_table.RUNNING_CELL:
    values['sax_root'] = cell_files.sax_root(run_lib.SAX_ROOT.value)
  elif system_kind == flag_table.NETWORK and not run_lib.SUT_SERVER.value:
    raise ValueError(
      '--system=network needs --sut_server, the address of every node, such as'
      ' --sut_server=10.0.0.7:8000,10.0.0.8:8000'
    )
  elif system_kind in (flag_table.OWN_CELL, flag_table.ENGINE):
    for text in run_lib.OVERRIDE.value:
      if not re.match('[^=]+=', text):
        raise ValueError(f'--override={text} must have the form NAME=JSON')
    overrides = run_lib.overrides()
    params = run_lib.PARAMS.value or benchmark.bundle.params
    if slip := overrides_lib.find_path_mistake(params):
      raise ValueError(f'--params={params}: {slip}')
    overrides_lib.check(params, overrides)
    if benchmark.uses_tokens:
      overrides = {'ENABLE_GENERATE_STREAM': 'true'} | overrides
    values['overrides'] = local_cell.group_overrides(_HOSTS.value, overrides)
    if run_lib.JAX_CACHE_DIR.value is None:
      values['jax_cache_dir'] = cache.jax
  system = KINDS[system_kind]
  if 'benchmark' in system.__struct_fields__:
    values['benchmark'] = benchmark.name
  return run_lib.fill(system, **values)
