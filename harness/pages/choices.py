"""What can be chosen of a run, by flag: the table behind the composing page."""

from collections.abc import Mapping
import dataclasses
import shlex

from harness.rules import rounds

PROGRAM = '//harness:main'

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
    flag: its name.
    title: what the page calls it.
    help: one sentence about it.
    group: heading under which it stands.
    options: the values it may have; empty: any text.
    chosen: what the page opens with; empty: the flag is left out, and the
      program's own default holds.
    kind: one (of the options), many (of them, with commas between), text,
      number or switch.
    benchmarks: by option, the benchmarks that it is for; all, where it is not
      named.
    systems: kinds of systems that the flag is for; empty: all.
  """

  flag: str
  title: str
  help: str
  group: str
  options: tuple[str, ...] = ()
  chosen: str = ''
  kind: str = 'text'
  benchmarks: Mapping[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
  systems: tuple[str, ...] = ()

  def allows(self, option: str, model: str) -> bool:
    """Whether an option is for a model."""
    return rounds.MODELS[model] in self.benchmarks.get(
      option, rounds.BENCHMARKS
    )


_RUN, _SYSTEM, _LIMITS, _FILES = (
  'What is run',
  'What answers',
  'LoadGen',
  'Files and results',
)

CHOICES = (
  Choice(
    'model',
    'Model',
    'Benchmark, and how close to the reference its accuracy must be.',
    _RUN,
    tuple(rounds.MODELS),
    'gptj-99',
    'one',
  ),
  Choice(
    'scenario',
    'Scenarios',
    'How LoadGen asks. Several are run one after the other.',
    _RUN,
    tuple(rounds.SCENARIOS),
    rounds.OFFLINE,
    'many',
  ),
  Choice(
    'round',
    'Round',
    'Round of MLPerf Inference whose seeds and rules hold. Default: the last'
    ' one of the benchmark.',
    _RUN,
    tuple(rounds.ROUNDS),
    '',
    'one',
    {name: _BERT for name in rounds.ROUNDS if name not in _GPTJ_ROUNDS},
  ),
  Choice(
    'execution_mode',
    'Execution mode',
    'test: a handful of queries; fast: a minute or two; valid: as long as the'
    ' rules ask. Default: ten seconds of a performance run.',
    _RUN,
    ('test', 'fast', 'valid'),
    '',
    'one',
  ),
  Choice(
    'mode',
    'Runs',
    'find_performance searches for the highest target that is valid.',
    _RUN,
    ('accuracy,performance', 'accuracy', 'performance', 'find_performance'),
    'accuracy,performance',
    'one',
  ),
  Choice(
    'system',
    'System',
    "A Sax cell, its engine in LoadGen's process, or the PyTorch reference; for"
    ' BERT ONNX Runtime or PyTorch.',
    _SYSTEM,
    (*_GPTJ_SYSTEMS, *_BERT_SYSTEMS),
    'cell',
    'one',
    {name: _GPTJ for name in _GPTJ_SYSTEMS}
    | {name: _BERT for name in _BERT_SYSTEMS},
  ),
  Choice(
    'device',
    'Device',
    'Where the model computes.',
    _SYSTEM,
    ('cpu', 'cuda'),
    kind='one',
    systems=('reference', 'onnxruntime', 'pytorch'),
  ),
  Choice(
    'precision',
    'Precision',
    'Type of the numbers, such as float32, bfloat16 or int8.',
    _SYSTEM,
    systems=('reference', 'onnxruntime', 'pytorch'),
  ),
  Choice(
    'model_path',
    'Model of a running cell',
    'Such as /sax/test/gptj. Default: a cell is started.',
    _SYSTEM,
    systems=('cell',),
  ),
  Choice(
    'sax_root',
    'Root of the running cell',
    'Directory that the cell and its clients share.',
    _SYSTEM,
    systems=('cell',),
  ),
  Choice(
    'network',
    'Network division',
    'lon: LoadGen asks a running cell on other hosts over the network.',
    _SYSTEM,
    ('lon',),
    kind='one',
    systems=('cell',),
  ),
  Choice(
    'params',
    'Serving params',
    'Class of the serving params of what is started.',
    _SYSTEM,
    systems=('cell', 'engine'),
  ),
  Choice(
    'checkpoint',
    'Checkpoint',
    'PAX, for the reference that of Hugging Face. Default: the bundled model.',
    _SYSTEM,
    systems=_GPTJ_SYSTEMS,
  ),
  Choice(
    'system_preset',
    'System preset',
    'Known system that this is, such as tpu_v5e_x4. Default: this machine.',
    _SYSTEM,
  ),
  Choice(
    'target_qps',
    'Target (queries/s)',
    'Offline: the speed you expect. Server: how much LoadGen asks.',
    _LIMITS,
    kind='number',
  ),
  Choice(
    'target_latency_ms',
    'Target latency (ms)',
    'Server: the bound. SingleStream and MultiStream: what you expect.',
    _LIMITS,
    kind='number',
  ),
  Choice(
    'min_duration',
    'Shortest run (ms)',
    f'Official runs last {rounds.MIN_DURATION_MS} ms.',
    _LIMITS,
    kind='number',
  ),
  Choice(
    'concurrency',
    'Requests in flight',
    'Most requests that are unanswered at a time.',
    _LIMITS,
    kind='number',
  ),
  Choice(
    'warm_up',
    'Warm-up',
    'Sizes of bursts before the first run: 1-32,36 asks for one sample, then for'
    ' two at once, up to 32, then for 36.',
    _LIMITS,
  ),
  Choice(
    'sample_count',
    'Samples',
    'Samples of the data set to use, from the front. Default: all.',
    _FILES,
    kind='number',
  ),
  Choice(
    'dataset_path',
    'Data set',
    'Evaluation file. Default: the bundled one.',
    _FILES,
  ),
  Choice('tokenizer_path', 'Tokenizer', 'Of the model.', _FILES),
  Choice(
    'max_input_length',
    'Longest prompt (tokens)',
    'Prompts are cut after these tokens; GPT-J 6B takes 1919.',
    _FILES,
    kind='number',
  ),
  Choice('results_dir', 'Results', 'Where the results go.', _FILES),
  Choice(
    'cache_dir',
    'Cache',
    'Directory for data, models, programs and results.',
    _FILES,
  ),
  Choice(
    'submission',
    'Submission',
    'Flags of //harness:submission, with which a submission is made of the'
    ' results, such as --submitter=Me --system_name=desk.',
    _FILES,
  ),
  Choice(
    'rerun',
    'Run again',
    'Run even if a stored result has the same parameters.',
    _FILES,
    kind='switch',
  ),
)

GROUPS = (_RUN, _SYSTEM, _LIMITS, _FILES)


def defaults() -> dict[str, str]:
  """What the page opens with, by flag."""
  return {each.flag: each.chosen for each in CHOICES}


def command(values: Mapping[str, str]) -> str:
  """The command of some choices, a flag a line, as compose.js makes it, too.

  Args:
    values: by flag; what is empty is left out. Several scenarios have commas
      between them, a switch that is on has "1".
  """
  words = [f'./bazelw run {PROGRAM} --']
  for each in CHOICES:
    value = values.get(each.flag, '').strip()
    if not value:
      continue
    if each.systems and values.get('system') not in each.systems:
      continue
    if each.kind == 'switch':
      words.append(f'--{each.flag}')
    elif each.kind == 'many' and set(value.split(',')) == set(each.options):
      words.append(f'--{each.flag}=all')
    else:
      words.append(shlex.quote(f'--{each.flag}={value}'))
  return ' \\\n    '.join(words)
