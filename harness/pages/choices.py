"""Renders the page that composes a command, and defines its choices."""

from collections.abc import Callable, Mapping
import dataclasses
import pathlib
import shlex

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.rules import rounds
from saxml_ext.common.pages import page_kit

PROGRAM = '//harness:main'

_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'compose.html'
_LM_SYSTEMS = ('cell', 'engine', 'reference')
_BERT_SYSTEMS = ('onnxruntime', 'pytorch')


@dataclasses.dataclass(frozen=True)
class Choice:
  """A flag of the program.

  Attributes:
    flag: The name of the flag.
    title: The title on the page.
    help: One sentence about the flag.
    kind: The kind of input: one (of the options), many (options, separated by
      commas), text, number or switch.
    options: The allowed values; empty if any text is allowed.
    chosen: The initial value on the page. If it is empty, the flag is left out
      and the program uses its default.
    benchmarks: The benchmarks that support an option, by option. An option that
      is not listed supports all benchmarks.
    systems: The kinds of systems that support the flag; empty if all do.
  """

  flag: str
  title: str
  help: str
  kind: str = 'text'
  options: tuple[str, ...] = ()
  chosen: str = ''
  benchmarks: Mapping[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
  systems: tuple[str, ...] = ()

  def allows(self, option: str, model: str) -> bool:
    """Returns True if a model supports an option."""
    name = benchmarks.MODELS[model].name
    return name in self.benchmarks.get(option, (name,))


def _names(holds: Callable[[benchmark_lib.Benchmark], bool]) -> tuple[str, ...]:
  """Returns the names of the benchmarks for which a condition holds."""
  return tuple(
    name for name, value in benchmarks.BENCHMARKS.items() if holds(value)
  )


_ON_DEVICE = ('reference', 'onnxruntime', 'pytorch')

# The choices, by their heading on the page.
GROUPS = {
  'Run': (
    Choice(
      'model',
      'Model',
      'The benchmark and its accuracy target.',
      'one',
      tuple(benchmarks.MODELS),
      next(iter(benchmarks.DEFAULT.models)),
    ),
    Choice(
      'scenario',
      'Scenarios',
      'How LoadGen issues samples. Several scenarios run one after the other.',
      'many',
      tuple(rounds.SCENARIOS),
      rounds.OFFLINE,
      {
        name: _names(lambda benchmark: name in benchmark.scenarios)
        for name in rounds.SCENARIOS
      },
    ),
    Choice(
      'round',
      'Round',
      "The MLPerf round, whose rules apply. Default: the model's last one.",
      'one',
      tuple(rounds.ROUNDS),
      benchmarks={
        name: tuple(sorted(_names(lambda benchmark: benchmark.is_in(name))))
        for name in rounds.ROUNDS
      },
    ),
    Choice(
      'execution_mode',
      'Execution mode',
      'test: a few queries. fast: one or two minutes. valid: as long as the'
      ' rules require. Default: a performance run of ten seconds.',
      'one',
      ('test', 'fast', 'valid'),
    ),
    Choice(
      'mode',
      'Runs',
      'find_performance searches for the highest target that is valid.',
      'one',
      ('accuracy,performance', 'accuracy', 'performance', 'find_performance'),
      'accuracy,performance',
    ),
  ),
  'System': (
    Choice(
      'system',
      'System',
      "A Sax cell, its engine in LoadGen's process, or the PyTorch reference."
      ' For BERT: ONNX Runtime or PyTorch.',
      'one',
      (*_LM_SYSTEMS, *_BERT_SYSTEMS),
      'cell',
      {
        name: _names(lambda benchmark: name in benchmark.systems)
        for name in (*_LM_SYSTEMS, *_BERT_SYSTEMS)
      },
    ),
    Choice(
      'device',
      'Device',
      'The device of the model.',
      'one',
      ('cpu', 'cuda'),
      systems=_ON_DEVICE,
    ),
    Choice(
      'precision',
      'Precision',
      'The number type, such as float32, bfloat16 or int8.',
      systems=_ON_DEVICE,
    ),
    Choice(
      'model_path',
      'Model of a running cell',
      'A path such as /sax/test/gptj. Default: start a cell.',
      systems=('cell',),
    ),
    Choice(
      'sax_root',
      'Root of the running cell',
      'The directory that the cell and its clients share.',
      systems=('cell',),
    ),
    Choice(
      'network',
      'Network division',
      'lon: LoadGen sends samples to a running cell on other hosts.',
      'one',
      ('lon',),
      systems=('cell',),
    ),
    Choice(
      'params',
      'Serving params',
      'The class of the serving params to start.',
      systems=('cell', 'engine'),
    ),
    Choice(
      'checkpoint',
      'Checkpoint',
      'PAX; for the reference: Hugging Face. Default: the bundled model.',
      systems=_LM_SYSTEMS,
    ),
    Choice(
      'system_preset',
      'System preset',
      'A known system, such as tpu_v5e_x4. Default: this machine.',
    ),
  ),
  'LoadGen': (
    Choice(
      'target_qps',
      'Target (queries/s)',
      "Offline: the expected rate. Server: the rate of LoadGen's queries.",
      'number',
    ),
    Choice(
      'target_latency_ms',
      'Target latency (ms)',
      'Server: the limit. SingleStream, MultiStream: the expected latency.',
      'number',
    ),
    Choice(
      'min_duration',
      'Shortest run (ms)',
      f'Official runs last {rounds.MIN_DURATION_MS} ms.',
      'number',
    ),
    Choice(
      'concurrency',
      'Requests in flight',
      'The maximum number of unanswered requests.',
      'number',
    ),
    Choice(
      'warm_up',
      'Warm-up',
      'The sizes of bursts before the first run: 1-32,36 means 1, ..., 32, 36.',
    ),
  ),
  'Files and results': (
    Choice(
      'sample_count',
      'Samples',
      'The number of samples, from the front of the set. Default: all.',
      'number',
    ),
    Choice('dataset_path', 'Data set', 'The file. Default: the bundled one.'),
    Choice('tokenizer_path', 'Tokenizer', "The model's tokenizer."),
    Choice(
      'max_input_length',
      'Longest prompt (tokens)',
      'Longer prompts are cut. GPT-J 6B takes 1919 tokens.',
      'number',
    ),
    Choice('results_dir', 'Results', 'The directory of the results.'),
    Choice('cache_dir', 'Cache', 'Data, models, programs and results.'),
    Choice(
      'submission',
      'Submission',
      'Flags of //harness:submission, which makes a submission of the results.'
      ' Example: --submitter=Me --system_name=desk.',
    ),
    Choice(
      'rerun',
      'Run again',
      'Run even if there is a result with the same parameters.',
      'switch',
    ),
  ),
}

CHOICES = tuple(choice for group in GROUPS.values() for choice in group)


def defaults() -> dict[str, str]:
  """Returns the initial values of the page, by flag."""
  return {choice.flag: choice.chosen for choice in CHOICES}


def command(values: Mapping[str, str]) -> str:
  """Returns the command for some choices, with one flag per line.

  compose.js implements the same function in the browser.

  Args:
    values: The values by flag. Empty values are left out. Several scenarios are
      separated by commas. A switch that is on has the value "1".
  """
  words = [f'./bazelw run {PROGRAM} --']
  for choice in CHOICES:
    value = values.get(choice.flag, '').strip()
    wrong_system = choice.systems and values.get('system') not in choice.systems
    if not value or wrong_system:
      continue
    if choice.kind == 'switch':
      words.append(f'--{choice.flag}')
    elif choice.kind == 'many' and set(value.split(',')) == set(choice.options):
      words.append(f'--{choice.flag}=all')
    else:
      words.append(shlex.quote(f'--{choice.flag}={value}'))
  return ' \\\n    '.join(words)


def page() -> str:
  """Returns the page as HTML that works without a server."""
  table = [dataclasses.asdict(choice) for choice in CHOICES]
  models = {name: b.name for name, b in benchmarks.MODELS.items()}
  return page_kit.render(
    _TEMPLATE,
    command=command(defaults()),
    groups=list(GROUPS.items()),
    table={'program': PROGRAM, 'choices': table, 'models': models},
  )
