"""Finds the model to serve, and chooses suitable serving params."""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import re

import psutil

from converters.hf import hub
from saxml_ext.common import files
from saxml_ext.common import user_path
from saxml_ext.families import all as families
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides as overrides_lib
from saxml_ext.pax import description
from saxml_ext.pax import errors as pax_errors
from serve import conversion
from serve import local_cell
from serve import programs

INT8 = 'int8'

_BUNDLED = os.path.join(programs.ROOT, 'harness', 'bundled')
# Prompts of the bundled model are complete, so its template adds nothing. Other
# base models get the dialogue template.
_BUNDLED_NAME, _BUNDLED_TEMPLATE = 'gptj-small', 'plain'
_BASE_TEMPLATE = 'dialogue'

_GENERATION_CONFIG = 'generation_config.json'

# The answer gets a quarter of the positions, up to a limit that suits chats.
_ANSWER_SHARE, _MOST_ANSWER = 4, 1024
_LEAST_LENGTH = 32
_FIRST_BUCKET = 128
_BEAMS = 4
_SLOTS = (16, 8, 4, 2, 1)
# Programs, buffers and the servers need memory in addition to weights and
# slots.
_MARGIN = 1.25
_OWN_BYTES = 2**30


@dataclasses.dataclass(frozen=True)
class Options:
  """The user's options for all models.

  Attributes:
    params: The serving params; '' for an automatic choice.
    overrides: The values, as JSON, by attribute of the serving params.
    quantize: The number format INT8, or '' for floating point.
    max_model_len: The maximum length of prompt and answer together, in tokens;
      0 for the model's own limit.
    chat_template: The name or the path of a chat template; '' for the model's
      own.
  """

  params: str = ''
  overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)
  quantize: str = ''
  max_model_len: int = 0
  chat_template: str = ''


@dataclasses.dataclass(frozen=True)
class Model(local_cell.Model):
  """A model that is ready to be published.

  Attributes:
    public_name: The name that clients of the gateway use.
    chat_template: The value of the gateway's flag for the chat template.
    generation_config: The path of its generation_config.json; '' if it has
      none.
    program_set: The programs that the build compiled for it; '' if there are
      none.
    notes: The sentences about automatic choices that the user should read.
  """

  public_name: str
  chat_template: str
  generation_config: str
  program_set: str = ''
  notes: tuple[str, ...] = ()


def find(
  wanted: str, options: Options, cache: str, run: conversion.Run
) -> Model:
  """Finds a model, and converts it first if it is in Hugging Face's format.

  Args:
    wanted: A Hugging Face directory, a PAX checkpoint, or the id of a model on
      the Hugging Face hub; '' for the bundled model.
    options: The user's options.
    cache: The directory for converted models.
    run: The function that runs the converters.

  Raises:
    programs.ServeError: There is no such model, it is not supported, or it does
    not fit into this machine's memory or disk.
  """
  program_set = ''
  path = user_path.resolve(wanted)
  if not wanted:
    directory, name, program_set = _bundled()
  elif _checkpoint(path):
    directory, name = path, _base_name(path)
  else:
    try:
      directory, name = hub.locate(wanted), _base_name(wanted)
    except pax_errors.CheckpointError as e:
      raise programs.ServeError(str(e).replace('--base=', '')) from e
  if _checkpoint(directory):
    # The tokenizer and similar files are next to the step directory.
    directory = os.path.dirname(_checkpoint(directory))
  else:
    conversion.check(directory)
    directory = conversion.converted(
      directory, name, options.quantize == INT8, cache, run
    )
  template, notes = _template(directory, not wanted, options)
  params, overrides = _choose(directory, options)
  generation_config = os.path.join(directory, _GENERATION_CONFIG)
  if not os.path.isfile(generation_config):
    generation_config = ''
  return Model(
    name=re.sub(r'[^A-Za-z0-9_.-]', '-', name),
    params=params,
    checkpoint=_checkpoint(directory),
    overrides=overrides,
    public_name=name if not wanted or os.path.isdir(path) else wanted,
    chat_template=template,
    generation_config=generation_config,
    program_set=program_set,
    notes=notes,
  )


def _bundled() -> tuple[str, str, str]:
  """Returns the directory, name and program set of the bundled model."""
  built = os.path.join(_BUNDLED, 'pax')
  if not os.path.isdir(built):  # Outside of Bazel, nothing was built.
    return os.path.join(_BUNDLED, 'model'), _BUNDLED_NAME, ''
  return built, _BUNDLED_NAME, os.path.join(_BUNDLED, 'serve_programs')


def _base_name(wanted: str) -> str:
  return os.path.basename(os.path.abspath(wanted))


def _checkpoint(directory: str) -> str:
  """Returns the step directory of a PAX checkpoint, or '' if it is none."""
  if os.path.basename(directory.rstrip('/')).startswith('checkpoint_'):
    return directory.rstrip('/')
  found = os.path.join(directory, conversion.CHECKPOINT)
  return found if os.path.isdir(found) else ''


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
  if os.path.isfile(path) and files.read_json(path).get('chat_template'):
    return directory, ()
  return _BASE_TEMPLATE, (
    f'the model has no chat template, so chats use "{_BASE_TEMPLATE}". See'
    ' --chat_template',
  )


def _choose(directory: str, options: Options) -> tuple[str, dict[str, str]]:
  """Returns the serving params of a PAX checkpoint, and their overrides."""
  if options.params:
    _check_overrides(options.params, options)
    return options.params, dict(options.overrides)
  said = description.read(os.path.join(directory, conversion.CHECKPOINT))
  if said.num_layers is None or said.max_positions is None:
    raise programs.ServeError(
      f'{directory} has neither config.json nor {description.FILE_NAME}, so'
      ' the serving params cannot be chosen. Set them with --params. See'
      ' docs/serving_params.md.'
    )
  try:
    params = families.named(said.family).serving
  except pax_errors.CheckpointError as e:
    raise programs.ServeError(f'{directory}: {e}') from e
  _check_overrides(params, options)
  lengths = _lengths(said.max_positions, options.max_model_len)
  overrides = lengths | _numbers(directory, said, lengths, options)
  return params, overrides | dict(options.overrides)


def _check_overrides(params: str, options: Options) -> None:
  """Raises programs.ServeError if an override would have no effect."""
  problem = overrides_lib.in_path(params)
  found = [problem] if problem else []
  found += overrides_lib.in_overrides(params, options.overrides)
  if found:
    raise programs.ServeError(' '.join(found))


def _lengths(positions: int, wanted: int) -> dict[str, str]:
  """Returns the overrides that split the positions into prompt and answer."""
  if wanted > positions:
    raise programs.ServeError(
      f'--max_model_len={wanted} is above the {positions} positions for which'
      ' the model was trained. Set at most that.'
    )
  total = wanted or positions
  if total < _LEAST_LENGTH:
    raise programs.ServeError(
      f'--max_model_len={total} is too short. Set at least {_LEAST_LENGTH}.'
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
  variables = os.path.join(directory, conversion.CHECKPOINT, 'state')
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
  stored = said.dtype or 'float32'
  stored_int8 = _is_int8(directory)
  int8 = stored_int8 or options.quantize == INT8
  dtype = 'float32' if int8 else stored
  weights = conversion.bytes_below(
    os.path.join(directory, conversion.CHECKPOINT)
  )
  if int8 and not stored_int8:
    weights //= conversion.FLOAT_BYTES[stored]
  tokens = int(lengths['INPUT_SEQ_LEN'])
  tokens += _BEAMS * int(lengths['MAX_DECODE_STEPS'])
  width = (said.num_kv_heads or said.num_heads or 0) * (said.head_dim or 0)
  values = 2 * (said.num_layers or 0) * width
  slot = values * conversion.FLOAT_BYTES[dtype] * tokens
  free = psutil.virtual_memory().available - _OWN_BYTES
  for slots in _SLOTS:
    needed = int(_MARGIN * (weights + slots * slot))
    if needed <= free:
      break
  else:
    gib = conversion.GIB
    raise programs.ServeError(
      f'The model needs {needed / gib:.1f} GiB of memory'
      f' ({weights / gib:.1f} GiB of weights in {"int8" if int8 else dtype}),'
      f' and {max(0, free) / gib:.1f} GiB are free. Use --quantize=int8, a'
      ' smaller --max_model_len, or a larger machine.'
    )
  chosen = {'BATCH_SIZE': str(slots), 'ram': str(needed)}
  if dtype != 'float32':
    chosen |= dict.fromkeys(('FPROP_DTYPE', 'MODEL_DTYPE'), json.dumps(dtype))
  if int8:
    chosen['QUANTIZATION'] = json.dumps(INT8)
  return chosen


def check_names(found: Sequence[Model]) -> None:
  """Raises programs.ServeError if two models have the same name."""
  for name, count in collections.Counter(model.name for model in found).items():
    if count > 1:
      raise programs.ServeError(
        f'Two models have the name {name}. Rename one of the directories.'
      )
