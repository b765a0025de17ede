"""Defines a LoadGen run: its specification, its flags and its progress lines.

A job copies its flags into the specification of a run and writes that to
run.json, which the process that runs LoadGen reads. If a user starts the
program of a run by hand, the program reads the flags itself. The process
reports on its standard output. LoadGen writes there too, so the lines are
marked.
"""

import json
import os
from typing import Any, Generic, TypeVar

from absl import flags
import msgspec

from harness.data import samples as samples_lib
from saxml_ext.common import files
from saxml_ext.common import user_path

FILE = 'run.json'
ACCURACY = 'accuracy'
PERFORMANCE = 'performance'
MODES = (ACCURACY, PERFORMANCE)

_MARK = '::run:: '
_S = TypeVar('_S')
_T = TypeVar('_T')

Samples = samples_lib.Samples


class Run(  # type: ignore[call-arg]
  msgspec.Struct, Generic[_S], frozen=True, forbid_unknown_fields=True
):
  """The specification of a run.

  Attributes:
    benchmark: LoadGen's name of the benchmark.
    scenario: LoadGen's name of the scenario.
    mode: The mode, ACCURACY or PERFORMANCE.
    user_conf: The path of LoadGen's user.conf.
    output_dir: The directory for LoadGen's logs.
    concurrency: The maximum number of unanswered samples.
    silence_secs: The time without any answer that ends the run.
    system: The system that answers.
    samples: The samples of the set.
    loadgen_attributes: The fields of TestSettings that user.conf cannot set.
    audit_conf: The path of a compliance test's audit.config; '': no test.
    timeline: The path of a CSV file for the times of every sample; '': none.
    buffer_count: The number of samples that LoadGen draws from; 0: the whole
      set.
    warm_up: The bursts to answer before the run; see
      `system.parse_bursts`.
    warm_up_rest_secs: The pause between warm-up and run.
  """

  benchmark: str
  scenario: str
  mode: str
  user_conf: str
  output_dir: str
  concurrency: int
  silence_secs: float
  system: _S
  samples: Samples
  loadgen_attributes: dict[str, int] = {}
  audit_conf: str = ''
  timeline: str = ''
  buffer_count: int = 0
  warm_up: str = ''
  warm_up_rest_secs: float = 0.0


def read(path: str, system: type[_S] | Any) -> Run[_S]:
  """Reads a specification.

  Args:
    path: The path of the file.
    system: The type of the system that the calling program runs.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not a specification, or is for another program.
  """
  return files.read_json(path, Run[system])  # type: ignore[valid-type]


# The flags whose names differ from their fields.
_FLAGS = {'overrides': 'override'}
_PATHS = (
  *('checkpoint', 'jax_cache_dir', 'dataset_path', 'tokenizer_path'),
  *('user_conf', 'audit_conf', 'output_dir', 'timeline'),
)

# The lowest default for the number of unanswered samples, the same as for
# --num_client_threads of Google's published main.py. Twice as many samples as a
# system computes together keep it busy while answers are in transit.
LEAST_CONCURRENCY = 200
# Only silence reveals that the servers of a running cell are gone. Systems that
# a job starts are watched, so a slow machine gets more time.
RUNNING_SILENCE_SECS = 25.0
STARTED_SILENCE_SECS = 120.0
# The bursts of the warm-up and the pause after it. The bursts up to 32 samples
# are from Google's published backend. The burst of 36, the slots of Krai's
# Server params, is from Krai's backend.
WARM_UP_BURSTS = '1,2,4,8,16,32,36'
WARM_UP_SECS = 30.0

MODE = flags.DEFINE_list(
  'mode',
  list(MODES),
  'The runs to make, separated by commas: accuracy, performance,'
  ' find_performance (searches the highest valid speed and keeps it for later'
  ' runs), compliance (the tests that closed submissions of BERT and'
  ' llama3.1-8b need). A program of one run accepts accuracy or performance.',
)
BUFFER_COUNT = flags.DEFINE_integer(
  'buffer_count',
  0,
  'The number of samples that a performance run draws from; 0: the whole set.',
  lower_bound=0,
)
CONCURRENCY = flags.DEFINE_integer(
  'concurrency',
  None,
  'The maximum number of unanswered requests. Default of a job:'
  f' {LEAST_CONCURRENCY}, and more for a system that computes more than half'
  ' as many samples together.',
  lower_bound=1,
)
SILENCE_SECS = flags.DEFINE_float(
  'silence_secs',
  None,
  'The time without any answer after which a run is abandoned. Raise it for a'
  ' model that needs longer for one sample. Default of a job:'
  f' {RUNNING_SILENCE_SECS:.0f} with --model_path, else'
  f' {STARTED_SILENCE_SECS:.0f}.',
  lower_bound=1,
)
WARM_UP = flags.DEFINE_string(
  'warm_up',
  None,
  'The sizes of the bursts that are answered before the first run. For'
  ' example, 1-32,36 sends one sample, then two at once, up to 32, then 36.'
  f' Empty: none. Default: {WARM_UP_BURSTS} for jobs of GPT-J in a cell or the'
  ' engine with --execution_mode=valid, else none.',
)
WARM_UP_REST_SECS = flags.DEFINE_float(
  'warm_up_rest_secs',
  None,
  f'The pause between warm-up and run, in seconds. Default: {WARM_UP_SECS:.0f}'
  ' after the default warm-up, else 0.',
  lower_bound=0,
)
DATASET_PATH = flags.DEFINE_string(
  'dataset_path',
  None,
  'GPT-J and Llama: articles in the schema of cnn_eval.json; the token ids of'
  " Llama's files (tok_input) are the prompts. BERT: questions in the schema of"
  ' SQuAD v1.1. Default: the bundled ones.',
)
TOKENIZER_PATH = flags.DEFINE_string(
  'tokenizer_path',
  None,
  'GPT-J and Llama: the tokenizer.json of the model. BERT: its vocab.txt. A job'
  ' also accepts a directory, or the id of a model on the Hugging Face hub.'
  ' Default: the file beside the checkpoint.',
)
MAX_INPUT_LENGTH = flags.DEFINE_integer(
  'max_input_length',
  None,
  'The maximum number of tokens of a prompt. Longer ones are cut for GPT-J, and'
  ' refused for Llama. Default: the limit of the model, at most that of the'
  " benchmark's prompts.",
  lower_bound=1,
)
SAMPLE_COUNT = flags.DEFINE_integer(
  'sample_count',
  0,
  'The number of samples to take from the front of the set; 0: all.',
  lower_bound=0,
)
MODEL_PATH = flags.DEFINE_string(
  'model_path',
  None,
  'The model of a running cell, /sax/<cell>/<model>. Default of a job: start a'
  ' cell.',
)
SAX_ROOT = flags.DEFINE_string(
  'sax_root', None, 'The root of the running cell. Default: $SAX_ROOT.'
)
NETWORK = flags.DEFINE_enum(
  'network',
  None,
  ['lon', 'sut'],
  'lon (LoadGen over network): the run belongs to the Network division. A cell'
  ' of --model_path runs on other hosts, and LoadGen logs its servers as a'
  ' Network SUT. Other systems have the addresses in --sut_server. sut: this'
  ' program is a Network SUT. Default: LoadGen and the system run on this'
  ' machine.',
)
STREAM = flags.DEFINE_bool(
  'stream',
  False,
  'Call GenerateStream of the cell of --model_path, to measure the time to the'
  ' first token. This needs a model without beam search and a server that'
  ' streams.',
)
PARAMS = flags.DEFINE_string(
  'params',
  None,
  'The serving params for the cell or the engine that the job starts. Default:'
  ' those of the bundled model.',
)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint',
  None,
  'The checkpoint of the system that the job starts: a PAX checkpoint, a'
  ' Hugging Face checkpoint for the reference and BERT, or an ONNX file for'
  ' onnxruntime. Default: the bundled model.',
)
OVERRIDE = flags.DEFINE_multi_string(
  'override',
  [],
  'NAME=JSON, a changed attribute of the serving params, such as BATCH_SIZE=8,'
  ' for the cell or the engine that the job starts. May be repeated.',
)
JAX_CACHE_DIR = flags.DEFINE_string(
  'jax_cache_dir',
  None,
  'The directory for compiled programs of the server that the job starts, for'
  ' a faster next start; empty: none. Default of a job: jax in --cache_dir.',
)
SUT_SERVER = flags.DEFINE_list(
  'sut_server', [], 'The "host:port" of every node of the Network SUT.'
)
CONNECTIONS = flags.DEFINE_integer(
  'connections',
  1,
  'The number of connections to each node of the Network SUT.',
  1,
)
DEVICE = flags.DEFINE_string(
  'device',
  'cpu',
  'The device of reference, onnxruntime and pytorch: cpu or cuda. The'
  ' reference also accepts cuda:1 for another GPU.',
)
PRECISION = flags.DEFINE_string(
  'precision',
  None,
  'The number format. Reference and pytorch: float32 (the default), bfloat16,'
  ' float16. onnxruntime: float32 (the default), float16, int8.',
)
BEAM_SIZE = flags.DEFINE_integer(
  'beam_size',
  None,
  'The number of beams of the reference. Default: 1 for Llama, and'
  ' $GPTJ_BEAM_SIZE or 4 for GPT-J. The serving params of a cell set its number'
  ' of beams.',
  lower_bound=1,
)
BATCH_SIZE = flags.DEFINE_integer(
  'batch_size',
  None,
  'The maximum number of samples in a batch. Default: 1 for the reference, 8'
  ' for BERT. The serving params of a cell set its batch size.',
  lower_bound=1,
)
THREADS = flags.DEFINE_integer(
  'threads', 0, 'The number of CPU threads for BERT; 0: one for each core.', 0
)


def fill(kind: type[_T], **values: Any) -> _T:
  """Returns a struct whose fields have the values of the flags of their names.

  Args:
    kind: The type, a msgspec.Struct. A field whose flag is not set keeps its
      default, or becomes None if it has no default.
    **values: The fields that no flag decides.
  """
  fields: tuple[str, ...] = _fields(kind)
  defaults: tuple[Any, ...] = getattr(kind, '__struct_defaults__', ())
  required = fields[: len(fields) - len(defaults)]
  for name in fields:
    if name not in values and name in flags.FLAGS:
      value = flags.FLAGS[name].value
      if name in _PATHS:
        value = user_path.resolve(value)
      if value is not None or name in required:
        values[name] = value
  return kind(**values)


def overrides() -> dict[str, str]:
  """Returns the values of --override by name; '' for a name without a value."""
  pairs = (text.partition('=') for text in OVERRIDE.value)
  return {name: value for name, _, value in pairs}


def keep(*what: type | str) -> None:
  """Removes the flags of this module that a program does not read.

  The program calls this before it parses its command line, so that absl rejects
  the flags of other systems.

  Args:
    *what: The structs that `fill` makes, and the names of other flags.
  """
  kept: set[str] = set()
  for kind in what:
    kept.update([kind] if isinstance(kind, str) else _fields(kind))
  kept |= {_FLAGS[name] for name in kept & set(_FLAGS)}
  for flag in list(flags.FLAGS.flags_by_module_dict()[__name__]):
    if flag.name not in kept:
      delattr(flags.FLAGS, flag.name)


def _fields(kind: Any) -> tuple[str, ...]:
  return kind.__struct_fields__


class RunStatus(msgspec.Struct, frozen=True):  # type: ignore[call-arg]
  """The state of a run.

  Attributes:
    issued: The number of samples that LoadGen has issued; 0 while it prepares.
    done: The number of answered samples.
    seconds: The elapsed time since the first sample was issued.
    finished: True if LoadGen has ended the run and written its logs.
    failure: The reason why the run was abandoned; None if it was not.
    warm_up: The name of the phase of the warm-up, whose samples are counted;
      '': the warm-up has ended, or there is none.
  """

  issued: int = 0
  done: int = 0
  seconds: float = 0.0
  finished: bool = False
  failure: str | None = None
  warm_up: str = ''


def send(status: RunStatus) -> None:
  """Writes a status to standard output with a single write."""
  line = f'{_MARK}{json.dumps(msgspec.structs.asdict(status))}\n'
  # The text begins with a line end, because LoadGen may have left a line open.
  os.write(1, f'\n{line}'.encode())


def parse(line: str) -> RunStatus | None:
  """Returns the status in a line, or None if the line has none."""
  if not line.startswith(_MARK):
    return None
  return msgspec.json.decode(line[len(_MARK) :], type=RunStatus)
