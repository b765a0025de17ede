"""Finds the model to serve, and chooses the serving params that fit it."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import fcntl
import hashlib
import importlib
import json
import os
import re
import shutil

import psutil

from converters.hf import config_json
from converters.hf import hub
from saxml_ext.common import user_path
from saxml_ext.pax import description
from saxml_ext.pax import errors as pax_errors
from serve import errors
from serve import programs

# Hugging Face's name of a family -> serving params for models of any size.
PARAMS = {'gptj': 'saxml_ext.params.gptj.AnyGPTJ'}
INT8 = 'int8'

_BUNDLED = os.path.join(programs.ROOT, 'harness', 'bundled')
# Its prompts are whole already; a base model of others answers a dialogue.
_BUNDLED_NAME, _BUNDLED_TEMPLATE = 'gptj-small', 'plain'
_BASE_TEMPLATE = 'dialogue'

_CHECKPOINT = 'checkpoint_00000000'
_TOKENIZER = 'tokenizer.json'
_GENERATION_CONFIG = 'generation_config.json'
_FLOAT_BYTES = {'float32': 4, 'bfloat16': 2}
_GIB = 2**30

# A quarter of the positions is for the answer, as far as chats need it.
_ANSWER_SHARE, _MOST_ANSWER = 4, 1024
_LEAST_LENGTH = 32
_FIRST_BUCKET = 128
_BEAMS = 4
_SLOTS = (16, 8, 4, 2, 1)
# Programs and buffers on top of weights and slots, and the servers themselves.
_MARGIN = 1.25
_OWN_BYTES = _GIB


@dataclasses.dataclass(frozen=True)
class Options:
  """Choices of the user that concern every model.

  Attributes:
    params: The serving params; '' chooses them.
    overrides: Attributes of the serving params with their values as JSON.
    quantize: INT8, or '' for floating point.
    max_model_len: The longest prompt and answer together, in tokens; 0 is the
      model's own limit.
    chat_template: The name or the path of a chat template; '' is the model's
      own.
  """

  params: str = ''
  overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)
  quantize: str = ''
  max_model_len: int = 0
  chat_template: str = ''


@dataclasses.dataclass(frozen=True)
class Model:
  """A model that is ready to be published.

  Attributes:
    name: The last part of its id in the cell.
    public_name: The name that clients of the gateway use.
    checkpoint: The step directory of its PAX checkpoint.
    params: The name of its serving params.
    overrides: Attributes of the serving params with their values as JSON.
    chat_template: As the gateway's flag takes it.
    generation_config: The path of its generation_config.json; '' if it has
      none.
    program_set: The programs that the build compiled for it; '' if there are
      none.
    notes: Sentences that the user should read, about choices made here.
  """

  name: str
  public_name: str
  checkpoint: str
  params: str
  overrides: Mapping[str, str]
  chat_template: str
  generation_config: str
  program_set: str = ''
  notes: tuple[str, ...] = ()


Run = Callable[[str, str, Mapping[str, object]], None]


def find(wanted: str, options: Options, cache: str, run: Run) -> Model:
  """Finds a model, and converts it first if it is one of Hugging Face's.

  Args:
    wanted: A directory of Hugging Face's or a PAX checkpoint, or the id of a
      model on the Hugging Face hub; '' is the bundled model.
    options: The user's choices.
    cache: The directory for converted models.
    run: Runs a program of this repository to its end, given what messages call
      it, its path and its flags.

  Raises:
    errors.ServeError: There is no such model, it cannot be served, or this
      machine has no room for it.
  """
  program_set = ''
  if not wanted:
    directory, name, program_set = _bundled()
  elif _checkpoint(path := user_path.resolve(wanted)):
    directory, name = path, _base_name(path)
  else:
    try:
      directory, name = hub.locate(wanted), _base_name(wanted)
    except pax_errors.CheckpointError as e:
      raise errors.ServeError(str(e).replace('--base=', '')) from e
  if _checkpoint(directory):
    # The tokenizer and its like are beside the step directory.
    directory = os.path.dirname(_checkpoint(directory))
  else:
    _check_convertible(directory)
    directory = _converted(directory, name, options, cache, run)
  template, notes = _template(directory, not wanted, options)
  params, overrides = _choose(directory, options)
  generation_config = os.path.join(directory, _GENERATION_CONFIG)
  return Model(
    name=re.sub(r'[^A-Za-z0-9_.-]', '-', name),
    public_name=name if os.path.isdir(wanted) or not wanted else wanted,
    checkpoint=_checkpoint(directory),
    params=params,
    overrides=overrides,
    chat_template=template,
    generation_config=(
      generation_config if os.path.isfile(generation_config) else ''
    ),
    program_set=program_set,
    notes=notes,
  )


def _bundled() -> tuple[str, str, str]:
  """Returns directory, name and program set of the bundled model."""
  built, programs_built = (
    os.path.join(_BUNDLED, name) for name in ('pax', 'serve_programs')
  )
  if not os.path.isdir(built):  # Nothing was built, outside of Bazel.
    return os.path.join(_BUNDLED, 'model'), _BUNDLED_NAME, ''
  return built, _BUNDLED_NAME, programs_built


def _base_name(wanted: str) -> str:
  return os.path.basename(os.path.abspath(wanted))


def _checkpoint(directory: str) -> str:
  """Returns the step directory of a PAX checkpoint; '' if it is none."""
  if os.path.basename(directory.rstrip('/')).startswith('checkpoint_'):
    return directory.rstrip('/')
  found = os.path.join(directory, _CHECKPOINT)
  return found if os.path.isdir(found) else ''


def _check_convertible(directory: str) -> None:
  """Raises errors.ServeError unless a directory holds a model to convert."""
  if not os.path.isdir(directory):
    raise errors.ServeError(
      f'{directory} is no directory, and no id of a model on the Hugging Face'
      ' hub. Give a Hugging Face directory (config.json, safetensors or .bin'
      ' files), a PAX directory, or an id such as EleutherAI/gpt-j-6b.'
    )
  try:
    document = config_json.read_json(os.path.join(directory, 'config.json'))
    family = document.get('model_type')
    if family not in PARAMS:
      raise errors.ServeError(
        f'{directory}/config.json: model_type {family!r} cannot be served;'
        f' known are {", ".join(PARAMS)}.'
      )
    config_json.read_config(directory)
  except pax_errors.CheckpointError as e:
    raise errors.ServeError(str(e)) from e
  if not os.path.isfile(os.path.join(directory, _TOKENIZER)):
    raise errors.ServeError(
      f'{directory} has no {_TOKENIZER}, without which no text can be served.'
      " Make it with transformers: AutoTokenizer.from_pretrained('...')"
      f".save_pretrained('{directory}')."
    )


def _converted(
  directory: str, name: str, options: Options, cache: str, run: Run
) -> str:
  """Returns the PAX directory of a Hugging Face model, made at first use."""
  config = config_json.read_config(directory)
  quantize = options.quantize == INT8
  dtype = _float_type(_parameters(config), quantize)
  target = os.path.join(
    cache, f'{name}-{_stamp(directory, dtype, options.quantize)}'
  )
  os.makedirs(cache, exist_ok=True)
  with open(f'{target}.lock', 'w', encoding='utf-8') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)  # Another serve may convert it just now.
    if _checkpoint(target):
      return target
    floats = f'{target}.float' if quantize else target
    size = _parameters(config) * _FLOAT_BYTES[dtype]
    _check_disk(cache, size * (5 if quantize else 4) // 4, target)
    if not _checkpoint(floats):
      run(
        'converter',
        programs.CONVERTER,
        {'base': directory, 'pax': floats, 'dtype': dtype, 'resume': True},
      )
    if quantize:
      run(
        'quantizer',
        programs.QUANTIZER,
        {
          'input_dir': floats,
          'output_dir': target,
          'report': False,
          'resume': True,
        },
      )
      shutil.rmtree(floats)
  return target


def _stamp(directory: str, *choices: str) -> str:
  """Returns a hash that changes with the files of a directory."""
  found = [os.path.realpath(directory), *choices]
  for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
    if entry.is_file():
      stat = entry.stat()
      found.append(f'{entry.name} {stat.st_size} {stat.st_mtime_ns}')
  return hashlib.sha256('\n'.join(found).encode()).hexdigest()[:12]


def _check_disk(cache: str, needed: int, target: str) -> None:
  part = sum(
    os.path.getsize(os.path.join(folder, file))
    for left in (target, f'{target}.float')
    for folder, _, files in os.walk(left)
    for file in files
  )  # What an interrupted conversion has left, with which it goes on.
  free = shutil.disk_usage(cache).free + part
  if needed > free:
    raise errors.ServeError(
      f'The converted model takes {needed / _GIB:.1f} GiB, and {cache} has'
      f' {free / _GIB:.1f} GiB free. Free some space, or name a directory on'
      ' another disk with --cache_dir or $GPTJ_SAX_CACHE.'
    )


def _parameters(config: config_json.HFConfig) -> int:
  """Returns the number of a GPT-J's parameters, norms and biases left out."""
  width = config.model_dim
  block = 4 * width * width + 2 * width * config.hidden_dim
  return config.num_layers * block + 2 * config.vocab_size * width


def _float_type(parameters: int, quantize: bool) -> str:
  """Returns float32 if it has room in half of the memory, else bfloat16."""
  if quantize:
    return 'float32'  # Quantized once, from the most exact form.
  room = psutil.virtual_memory().available / 2
  return 'float32' if parameters * 4 <= room else 'bfloat16'


def _template(
  directory: str, bundled: bool, options: Options
) -> tuple[str, tuple[str, ...]]:
  """Returns the chat template, and a note if it is not the model's own."""
  if options.chat_template:
    return options.chat_template, ()
  if bundled:
    return _BUNDLED_TEMPLATE, ()
  if os.path.isfile(os.path.join(directory, 'chat_template.jinja')):
    return directory, ()
  path = os.path.join(directory, 'tokenizer_config.json')
  if os.path.isfile(path):
    with open(path, encoding='utf-8') as file:
      if json.load(file).get('chat_template'):
        return directory, ()
  return _BASE_TEMPLATE, (
    f'the model has no chat template: chats use "{_BASE_TEMPLATE}", see'
    ' --chat_template',
  )


def _choose(directory: str, options: Options) -> tuple[str, dict[str, str]]:
  """Returns the serving params of a PAX checkpoint, with their overrides."""
  _check_overrides(options)
  if options.params:
    return options.params, dict(options.overrides)
  said = description.read(os.path.join(directory, _CHECKPOINT))
  if said.num_layers is None or said.max_positions is None:
    raise errors.ServeError(
      f'{directory} has neither config.json nor {description.FILE_NAME}, so'
      ' the serving params cannot be chosen. Name them with --params; see'
      ' docs/serving_params.md.'
    )
  lengths = _lengths(said.max_positions, options.max_model_len)
  overrides = lengths | _numbers(directory, said, lengths, options)
  return PARAMS['gptj'], overrides | dict(options.overrides)


def _check_overrides(options: Options) -> None:
  """Raises errors.ServeError if an override would have no effect."""
  if not (options.overrides or options.params):
    return  # Without them, a start saves the import of JAX.
  mistakes = importlib.import_module('saxml_ext.params.mistakes')
  problem = mistakes.in_path(options.params) if options.params else ''
  params = options.params or PARAMS['gptj']
  found = [problem] if problem else []
  found += mistakes.in_overrides(params, options.overrides)
  if found:
    raise errors.ServeError(' '.join(found))


def _lengths(positions: int, wanted: int) -> dict[str, str]:
  """Returns the overrides that divide a model's positions."""
  if wanted > positions:
    raise errors.ServeError(
      f'--max_model_len={wanted} is above the {positions} positions that the'
      ' model was trained for; give at most that.'
    )
  total = wanted or positions
  if total < _LEAST_LENGTH:
    raise errors.ServeError(
      f'--max_model_len={total} is too short; give at least {_LEAST_LENGTH}.'
    )
  answer = min(total // _ANSWER_SHARE, _MOST_ANSWER)
  prompt = total - answer
  buckets = [prompt]
  while (half := (buckets[0] + 1) // 2) >= _FIRST_BUCKET:
    buckets.insert(0, half)
  return {
    'INPUT_SEQ_LEN': str(prompt),
    'BUCKET_KEYS': json.dumps(buckets),
    'MAX_DECODE_STEPS': str(answer),
  }


def _is_int8(directory: str) -> bool:
  """Returns True if the matrices of a PAX checkpoint are int8."""
  variables = os.path.join(directory, _CHECKPOINT, 'state')
  return os.path.isdir(variables) and any(
    name.endswith('_quantized_scale') for name in os.listdir(variables)
  )


def _numbers(
  directory: str,
  said: description.Description,
  lengths: Mapping[str, str],
  options: Options,
) -> dict[str, str]:
  """Returns the overrides of number formats and slots that fit the memory."""
  int8 = options.quantize == INT8 or _is_int8(directory)
  dtype = 'float32' if int8 else said.dtype or 'float32'
  width = said.num_heads * said.head_dim
  head = 2 * said.vocab_size * said.model_dim
  block = 4 * said.model_dim * width + 2 * said.model_dim * said.hidden_dim
  item = _FLOAT_BYTES[dtype]
  weights = head * item + said.num_layers * block * (1 if int8 else item)
  tokens = int(lengths['INPUT_SEQ_LEN'])
  tokens += _BEAMS * int(lengths['MAX_DECODE_STEPS'])
  slot = 2 * said.num_layers * width * item * tokens
  free = psutil.virtual_memory().available - _OWN_BYTES
  for slots in _SLOTS:
    needed = int(_MARGIN * (weights + slots * slot))
    if needed <= free:
      break
  else:
    raise errors.ServeError(
      f'The model needs {needed / _GIB:.1f} GiB of memory'
      f' ({weights / _GIB:.1f} GiB of weights in'
      f' {"int8" if int8 else dtype}), and {max(0, free) / _GIB:.1f} GiB are'
      ' free. Use --quantize=int8, a smaller --max_model_len, or a larger'
      ' machine.'
    )
  chosen = {'BATCH_SIZE': str(slots), 'ram': str(needed)}
  if dtype != 'float32':
    chosen |= {
      'FPROP_DTYPE': json.dumps(dtype),
      'MODEL_DTYPE': json.dumps(dtype),
    }
  if int8:
    chosen['QUANTIZATION'] = json.dumps(INT8)
  return chosen


def renamed(model: Model, public_name: str) -> Model:
  """Returns the model with another name for clients."""
  return dataclasses.replace(model, public_name=public_name)


def check_names(found: Sequence[Model]) -> None:
  """Raises errors.ServeError if two models have the same name."""
  for i, model in enumerate(found):
    if any(model.name == other.name for other in found[:i]):
      raise errors.ServeError(
        f'Two models are called {model.name}. Rename one of the directories.'
      )
