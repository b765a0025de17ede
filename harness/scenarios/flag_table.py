"""Defines the table of flags: the runs in which each flag has an effect.

Every flag of the scenario programs that does not always act has a row. A flag
that the user gives but that has no effect in the run is an error. The tests read
the same table.
"""

from collections.abc import Callable, Collection, Mapping
import dataclasses
import os
import shlex
import sys

from harness.benchmarks import all as benchmarks
from harness.loadgen import run as run_lib
from harness.rules import rounds
from harness.scenarios import load as load_lib
from harness.systems import bert_systems
from harness.systems import launch
from saxml_ext.common import flag_rules
from serve import programs

# The systems of the table. A cell that the job starts differs from a running
# cell.
OWN_CELL = 'cell'
RUNNING_CELL = 'running cell'
ENGINE = 'engine'
REFERENCE = 'reference'
NETWORK = launch.NETWORK
_CELLS = (OWN_CELL, RUNNING_CELL)
# The systems of benchmarks that summarize news.
LM_SYSTEMS = (*_CELLS, ENGINE, REFERENCE, NETWORK)
BERT_SYSTEMS = (bert_systems.OnnxRuntimeBert.kind, bert_systems.TorchBert.kind)
SYSTEMS = (*LM_SYSTEMS, *BERT_SYSTEMS)
# _STARTED has the systems whose serving params the flags choose. SERVING has
# those with the engine of a model server, and _COMPUTES those that compute in
# another framework.
_STARTED = (OWN_CELL, ENGINE)
SERVING = (*_CELLS, ENGINE)
_COMPUTES = (REFERENCE, *BERT_SYSTEMS)

# The flag that selects each system, for messages.
_CHOICES = {
  OWN_CELL: 'a cell that is started here (--system=cell)',
  RUNNING_CELL: 'a running cell (--model_path)',
} | {name: f'--system={name}' for name in SYSTEMS if name not in _CELLS}

# The modes whose runs LoadGen times.
_TIMED = tuple(m for m in load_lib.MODES if m != run_lib.ACCURACY)
_NO_TEST = (None, load_lib.FAST, load_lib.VALID)


@dataclasses.dataclass(frozen=True)
class Run:
  """The choices that decide which flags have an effect.

  Attributes:
    system: The system, one of SYSTEMS.
    scenarios: LoadGen's names of the scenarios.
    modes: The modes, from load.MODES.
    execution_mode: The execution mode; None if none is given.
  """

  system: str
  scenarios: Collection[str]
  modes: Collection[str]
  execution_mode: str | None = None


@dataclasses.dataclass(frozen=True)
class Acts:
  """The runs in which a flag has an effect.

  Attributes:
    systems: The systems with which it has an effect.
    scenarios: The scenarios in which it has an effect.
    modes: The modes in which it has an effect.
    execution_modes: The execution modes in which it has an effect.
    searched: The scenarios in which find_performance searches for the value.
    instead: The alternative for systems without this flag, by system.
  """

  systems: Collection[str] = SYSTEMS
  scenarios: Collection[str] = tuple(rounds.SCENARIOS)
  modes: Collection[str] = load_lib.MODES
  execution_modes: Collection[str | None] = (None, *load_lib.EXECUTION_MODES)
  searched: Collection[str] = ()
  instead: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def problem(self, name: str, run: Run) -> str | None:
    """Returns the reason why a flag has no effect; None if it has an effect.

    Args:
      name: The name of the flag or environment variable, for the message.
      run: The choices of the run.
    """
    for choice, chosen, acting in (
      ('', [_CHOICES[run.system]], [_CHOICES[name] for name in self.systems]),
      ('--scenario=', run.scenarios, self.scenarios),
      ('--mode=', run.modes, self.modes),
      ('--execution_mode=', [run.execution_mode], self.execution_modes),
    ):
      if not set(chosen) & set(acting):
        instead = self.instead.get(run.system, 'Remove it')
        return (
          f'{name} has no effect with {choice}{_words(chosen)}. It has an'
          f' effect with {choice}{_words(acting)}. {instead}'
        )
    searched = [
      scenario for scenario in run.scenarios if scenario in self.searched
    ]
    if searched and load_lib.FIND_PERFORMANCE in run.modes:
      return (
        f'{name} has no effect with --mode={load_lib.FIND_PERFORMANCE}, which'
        f' searches for its value in {_words(searched)}. Leave out one of them'
      )
    return None


def _own(name: str) -> dict[str, str]:
  """Returns hints to use an attribute of the serving params, by system."""
  override = f'Remove it and use --override={name}=VALUE'
  return {OWN_CELL: override, ENGINE: override}


def _named(holds: Callable[[rounds.Scenario], bool]) -> tuple[str, ...]:
  """Returns the names of the scenarios for which a condition holds."""
  return tuple(
    name for name, scenario in rounds.SCENARIOS.items() if holds(scenario)
  )


_PUBLISHED = {
  RUNNING_CELL: 'Remove it, because the model is served as it was published'
}
# The scenarios in which LoadGen sends samples at a rate.
_RATED = _named(lambda scenario: not scenario.streams)

# Flags that act in every run are not listed.
ACTS: Mapping[str, Acts] = {
  # The flags of the system.
  'model_path': Acts(
    (RUNNING_CELL,),
    instead=dict.fromkeys(
      (ENGINE, REFERENCE),
      'That system is started here, so remove one of the two flags',
    )
    | dict.fromkeys(
      BERT_SYSTEMS, 'A cell cannot serve BERT. Pass its files with --checkpoint'
    ),
  ),
  'sax_root': Acts((RUNNING_CELL,)),
  'network': Acts((RUNNING_CELL,)),
  'stream': Acts((RUNNING_CELL,)),
  'params': Acts(_STARTED, instead=_PUBLISHED),
  'override': Acts(_STARTED, instead=_PUBLISHED),
  'checkpoint': Acts((*_STARTED, *_COMPUTES), instead=_PUBLISHED),
  'jax_cache_dir': Acts(_STARTED),
  'hosts': Acts((OWN_CELL,)),
  'sut_server': Acts((NETWORK,)),
  'connections': Acts((NETWORK,)),
  'device': Acts(
    _COMPUTES,
    instead=dict.fromkeys(
      _STARTED, 'Remove it. JAX_PLATFORMS chooses the device of JAX'
    ),
  ),
  'precision': Acts(
    _COMPUTES,
    instead=dict.fromkeys(
      _STARTED, 'Remove it. --params chooses the number format'
    ),
  ),
  'beam_size': Acts((REFERENCE,), instead=_own('BEAM_SIZE')),
  'batch_size': Acts(_COMPUTES, instead=_own('BATCH_SIZE')),
  'threads': Acts(BERT_SYSTEMS),
  # The flags of LoadGen.
  'min_duration': Acts(modes=_TIMED),
  'target_qps': Acts(scenarios=_RATED, searched=_RATED),
  'target_latency_ms': Acts(
    # Interactive has bounds on the latencies of tokens only.
    scenarios=_named(
      lambda scenario: (
        scenario.streams or (scenario.bounded and not scenario.run_as)
      )
    ),
    searched=_named(lambda scenario: scenario.streams),
  ),
  'test_query_count': Acts(modes=_TIMED, execution_modes=(load_lib.TEST,)),
  'equal_issue': Acts(modes=_TIMED, execution_modes=_NO_TEST),
  # A SingleStream query has one sample, and the next query waits for its
  # answer.
  'concurrency': Acts(
    scenarios=_named(
      lambda scenario: not scenario.streams or scenario.samples_per_query > 1
    )
  ),
  # The flags of the samples and their judge.
  'max_input_length': Acts(LM_SYSTEMS),
  'reference_path': Acts(modes=(run_lib.ACCURACY,)),
  'rouge_tolerance': Acts(LM_SYSTEMS, modes=(run_lib.ACCURACY,)),
  'nltk_data': Acts(LM_SYSTEMS, modes=(run_lib.ACCURACY,)),
  'require_identical': Acts(LM_SYSTEMS, modes=(run_lib.ACCURACY,)),
}

# The environment variables of the published recipes. Each name contains its
# benchmark, so a variable of GPT-J has no meaning for BERT.
VARIABLES: Mapping[str, Acts] = {
  benchmark.beam_variable: Acts(
    (REFERENCE, *BERT_SYSTEMS), instead=_own('BEAM_SIZE')
  )
  for benchmark in benchmarks.BENCHMARKS.values()
  if benchmark.beam_variable
}


def check(run: Run, environ: Mapping[str, str] = os.environ) -> None:
  """Checks that every given flag and variable has an effect in a run.

  Raises:
    ValueError: A flag or variable has no effect. The message names the remedy.
  """
  problems = [
    ACTS[name].problem(f'--{name}', run) for name in flag_rules.given(ACTS)
  ]
  problems += [
    acts.problem(f'the environment variable {name}={environ[name]}', run)
    for name, acts in VARIABLES.items()
    if environ.get(name)
  ]
  if reasons := [problem for problem in problems if problem]:
    raise ValueError(' '.join(f'{problem}.' for problem in reasons))


def check_included(
  system: str, launcher: str, scenarios: Collection[str], model: str
) -> None:
  """Checks that this program contains a system.

  The programs of one scenario contain only the cell.

  Args:
    system: The system, one of SYSTEMS.
    launcher: The path of the program that runs LoadGen with it.
    scenarios: LoadGen's names of the scenarios.
    model: The value of --model.

  Raises:
    ValueError: It does not. The message has the command that runs the system.
  """
  try:
    programs.command(launcher, {})
  except programs.ServeError:
    words = [f'--scenario={",".join(scenarios)}', *sys.argv[1:]]
    if not flag_rules.given(['model']):
      words.insert(1, f'--model={model}')
    raise ValueError(
      f'--system={system} is not included in this program, to keep its build'
      ' small. Run it with: ./bazelw run //harness:main --'
      f' {shlex.join(words)}'
    ) from None


def _words(names: Collection[str | None]) -> str:
  return ' or '.join(name or '(not given)' for name in names)
