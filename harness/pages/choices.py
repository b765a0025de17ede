"""Renders the page that composes a command, and defines its choices."""

from collections.abc import Mapping
import dataclasses
import pathlib
import shlex

from harness.rules import rounds
from saxml_ext.common.pages import page_kit

PROGRAM = '//harness:main'

_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'compose.html'
_GPTJ_SYSTEMS = ('cell', 'engine', 'reference')
_BERT_SYSTEMS = ('onnxruntime', 'pytorch')
_GPTJ = (rounds.GPTJ,)
_BERT = (rounds.BERT,)
_GPTJ_ROUNDS = tuple(rounds.ROUNDS)[
  : list(rounds.ROUNDS).index(rounds.LAST_OF_GPTJ) + 1
]


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
    return rounds.MODELS[model] in self.benchmarks.get(
      option, rounds.BENCHMARKS
    )


_ON_DEVICE = ('reference', 'onnxruntime', 'pytorch')

# The choices, by their heading on the page.
GROUPS = {
  'What is run': (
    Choice(
      'model',
      'Model',
      'Benchmark, and how close to the reference its accuracy must be.',
      'one',
      tuple(rounds.MODELS),
      'gptj-99',
    ),
    Choice(
      'scenario',
      'Scenarios',
      'How LoadGen asks. Several are run one after the other.',
      'many',
      tuple(rounds.SCENARIOS),
      rounds.OFFLINE,
    ),
    Choice(
      'round',
      'Round',
      'Round of MLPerf Inference whose seeds and rules hold. Default: the last'
      ' one of the benchmark.',
      'one',
      tuple(rounds.ROUNDS),
      benchmarks={n: _BERT for n in rounds.ROUNDS if n not in _GPTJ_ROUNDS},
    ),
    Choice(
      'execution_mode',
      'Execution mode',
      'test: a handful of queries; fast: a minute or two; valid: as long as the'
      ' rules ask. Default: ten seconds of a performance run.',
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
  'What answers': (
    Choice(
      'system',
      'System',
      "A Sax cell, its engine in LoadGen's process, or the PyTorch reference;"
      ' for BERT ONNX Runtime or PyTorch.',
      'one',
      (*_GPTJ_SYSTEMS, *_BERT_SYSTEMS),
      'cell',
      dict.fromkeys(_GPTJ_SYSTEMS, _GPTJ) | dict.fromkeys(_BERT_SYSTEMS, _BERT),
    ),
    Choice(
      'device',
      'Device',
      'Where the model computes.',
      'one',
      ('cpu', 'cuda'),
      systems=_ON_DEVICE,
    ),
    Choice(
      'precision',
      'Precision',
      'Type of the numbers, such as float32, bfloat16 or int8.',
      systems=_ON_DEVICE,
    ),
    Choice(
      'model_path',
      'Model of a running cell',
      'Such as /sax/test/gptj. Default: a cell is started.',
      systems=('cell',),
    ),
    Choice(
      'sax_root',
      'Root of the running cell',
      'Directory that the cell and its clients share.',
      systems=('cell',),
    ),
    Choice(
      'network',
      'Network division',
      'lon: LoadGen asks a running cell on other hosts over the network.',
      'one',
      ('lon',),
      systems=('cell',),
    ),
    Choice(
      'params',
      'Serving params',
      'Class of the serving params of what is started.',
      systems=('cell', 'engine'),
    ),
    Choice(
      'checkpoint',
      'Checkpoint',
      'PAX, for the reference that of Hugging Face. Default: the bundled model.',
      systems=_GPTJ_SYSTEMS,
    ),
    Choice(
      'system_preset',
      'System preset',
      'Known system that this is, such as tpu_v5e_x4. Default: this machine.',
    ),
  ),
  'LoadGen': (
    Choice(
      'target_qps',
      'Target (queries/s)',
      'Offline: the speed you expect. Server: how much LoadGen asks.',
      'number',
    ),
    Choice(
      'target_latency_ms',
      'Target latency (ms)',
      'Server: the bound. SingleStream and MultiStream: what you expect.',
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
      'Most requests that are unanswered at a time.',
      'number',
    ),
    Choice(
      'warm_up',
      'Warm-up',
      'Sizes of bursts before the first run: 1-32,36 asks for one sample, then'
      ' for two at once, up to 32, then for 36.',
    ),
  ),
  'Files and results': (
    Choice(
      'sample_count',
      'Samples',
      'Samples of the data set to use, from the front. Default: all.',
      'number',
    ),
    Choice(
      'dataset_path', 'Data set', 'Evaluation file. Default: the bundled one.'
    ),
    Choice('tokenizer_path', 'Tokenizer', 'Of the model.'),
    Choice(
      'max_input_length',
      'Longest prompt (tokens)',
      'Prompts are cut after these tokens; GPT-J 6B takes 1919.',
      'number',
    ),
    Choice('results_dir', 'Results', 'Where the results go.'),
    Choice(
      'cache_dir',
      'Cache',
      'Directory for data, models, programs and results.',
    ),
    Choice(
      'submission',
      'Submission',
      'Flags of //harness:submission, with which a submission is made of the'
      ' results, such as --submitter=Me --system_name=desk.',
    ),
    Choice(
      'rerun',
      'Run again',
      'Run even if a stored result has the same parameters.',
      'switch',
    ),
  ),
}

CHOICES = tuple(choice for group in GROUPS.values() for choice in group)


def defaults() -> dict[str, str]:
  """Returns the initial values of the page, by flag."""
  return {each.flag: each.chosen for each in CHOICES}


def command(values: Mapping[str, str]) -> str:
  """Returns the command for some choices, with one flag per line.

  compose.js implements the same function in the browser.

  Args:
    values: The values by flag. Empty values are left out. Several scenarios are
      separated by commas. A switch that is on has the value "1".
  """
  words = [f'./bazelw run {PROGRAM} --']
  for each in CHOICES:
    value = values.get(each.flag, '').strip()
    wrong_system = each.systems and values.get('system') not in each.systems
    if not value or wrong_system:
      continue
    if each.kind == 'switch':
      words.append(f'--{each.flag}')
    elif each.kind == 'many' and set(value.split(',')) == set(each.options):
      words.append(f'--{each.flag}=all')
    else:
      words.append(shlex.quote(f'--{each.flag}={value}'))
  return ' \\\n    '.join(words)


def page() -> str:
  """Returns the page as HTML that works without a server."""
  table = [dataclasses.asdict(each) for each in CHOICES]
  return page_kit.render(
    _TEMPLATE,
    command=command(defaults()),
    groups=list(GROUPS.items()),
    table={'program': PROGRAM, 'choices': table},
  )
