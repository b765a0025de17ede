"""Finds the models to serve, and chooses suitable serving params."""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import importlib
import json
import os
import re

import psutil

from converters.hf import smollm2
from saxml_ext.common import errors as sax_errors
from saxml_ext.common import user_path
from saxml_ext.common.machine import accelerators
from saxml_ext.families import all as families
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides as overrides_lib
from saxml_ext.params import registry
from saxml_ext.pax import description as description_lib
from saxml_ext.pax import errors as pax_errors
from serve import conversion
from serve import local_cell
from serve import programs
from serve import stored as stored_lib

DEFAULT_NAME = smollm2.NAME
# Prompts of the bundled models are complete, so their template adds nothing.
_BUNDLED_TEMPLATE = 'plain'

# The GGUF file of the default model has no settings of sampling.
_DEFAULT_SAMPLING = os.path.join(
  programs.ROOT, 'bundled', 'smollm2', stored_lib.GENERATION_CONFIG
)

# Answers with beams or several samples get a quarter of the context, up to a
# limit that suits chats.
_ANSWER_SHARE, _MOST_ANSWER = 4, 1024
_LEAST_LENGTH = 32
# The length of a prompt's chunks, and those to which the last one is padded.
_CHUNK, _BUCKETS = 512, (64, 192)
_BEAMS = 4
# The group of numbers that share a step in int4, as in
# `engine/numerics/int4.py`, which would import JAX.
_INT4_GROUP = 32
_KV_BYTES = 4  # Keys and values are float32 on a CPU.
_SLOTS = (16, 8, 4, 2, 1)
# On CPUs each call of the engine costs milliseconds besides its decode steps. So
# streams of small models get several tokens in a message: the sizes of the
# weights in bytes, and the decode steps of a message.
_INTERVALS = ((2**29, 4), (2**31, 2))
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
    quantize: The number format of matrices: one of programs.NUMBER_FORMATS, or
      '' for that which is nearest to the stored one.
    max_model_len: The maximum length of prompt and answer together, in tokens;
      0 for the model's own limit.
    chat_template: The name or the path of a chat template; '' for the model's
      own.
    gpu_bytes: The bytes for models on the GPU that computes them; 0 if they are
      unknown or the CPU computes.
  """

  params: str = ''
  overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)
  quantize: str = ''
  max_model_len: int = 0
  chat_template: str = ''
  gpu_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Model(local_cell.Model):
  """A model that is ready to be published once its job, if any, has run.

  Attributes:
    public_name: The name that clients of the gateway use.
    chat_template: The value of the gateway's flag for the chat template; '' for
      the template of the checkpoint.
    generation_config: The path of its generation_config.json; '' if it has
      none.
    program_set: The programs that the build compiled for it; '' if there are
      none.
    notes: The sentences about automatic choices that the user should read.
    job: The conversion that makes the checkpoint; None if it exists.
  """

  public_name: str
  chat_template: str
  generation_config: str = ''
  program_set: str = ''
  notes: tuple[str, ...] = ()
  job: conversion.Job | None = None

  @property
  def label(self) -> str:
    """The name of the model in messages, which is that for clients."""
    return self.public_name

  def converted(self, run: conversion.Run) -> 'Model':
    """Returns the model with its checkpoint, which its job makes first.

    Args:
      run: The function that runs the converter.

    Raises:
      programs.ServeError: The conversion failed.
    """
    directory = os.path.dirname(self.checkpoint)
    if self.job is not None:
      directory = self.job.run(run)
    path = (
      self.generation_config or f'{directory}/{stored_lib.GENERATION_CONFIG}'
    )
    return dataclasses.replace(
      self,
      checkpoint=os.path.join(directory, conversion.CHECKPOINT),
      chat_template=self.chat_template or directory,
      generation_config=path if os.path.isfile(path) else '',
      job=None,
    )


def find_all(words: Sequence[str], options: Options, cache: str) -> list[Model]:
  """Finds models and checks that all of them can be served; converts nothing.

  Args:
    words: The models: Hugging Face directories, GGUF files, PAX checkpoints,
      bundled models, or ids on the Hugging Face hub. Without words, the
      default model is served.
    options: The user's options.
    cache: The directory for converted models.

  Raises:
    programs.ServeError: A model does not exist or is not supported, an option
    does not fit a model, or memory or disk do not suffice for all.
  """
  models: list[Model] = []
  for word in words or [DEFAULT_NAME]:
    reserved = sum(int(model.overrides.get('ram', 0)) for model in models)
    try:
      models.append(_find(word, options, cache, reserved))
    except pax_errors.CheckpointError as e:
      raise programs.ServeError(str(e)) from e
    except sax_errors.SaxError as e:
      raise programs.ServeError(e.message) from e
  for name, count in collections.Counter(m.name for m in models).items():
    if count > 1:
      raise programs.ServeError(
        f'Two models have the name {name}. Rename one of the directories.'
      )
  conversion.check_disk([model.job for model in models if model.job])
  return models


def _find(word: str, options: Options, cache: str, reserved: int) -> Model:
  path = user_path.resolve(word)
  name, program_set, job = _base_name(path), '', None
  generation_config = ''
  bundled = programs.bundled(word)
  if bundled:
    path, program_set = bundled
  elif word == DEFAULT_NAME and not os.path.exists(path):
    path = word = smollm2.path()
    name, generation_config = DEFAULT_NAME, _DEFAULT_SAMPLING
  checkpoint = _checkpoint(path)
  if checkpoint:
    # The tokenizer and similar files are next to the step directory.
    stored, format_note = stored_lib.open_pax(
      os.path.dirname(checkpoint), checkpoint, options.quantize
    )
  else:
    source = conversion.open_source(path if bundled else word)
    dtype, matrices, format_note = stored_lib.number_format(
      source, options.quantize
    )
    in_int8 = matrices == stored_lib.INT8
    job = conversion.Job(source, _cell_name(name), dtype, in_int8, cache)
    stored = stored_lib.Stored(
      source.path,
      source.describe(dtype),
      # int4 needs less than int8, and fp8 as much.
      source.num_bytes(dtype, matrices != stored_lib.FLOAT),
      matrices,
      source.tokenizer,
    )
  template, notes = stored_lib.chat_template(
    stored, options.chat_template or (_BUNDLED_TEMPLATE if bundled else '')
  )
  params, overrides = _choose(stored, options, reserved)
  public_name = name if os.path.exists(path) else word
  for text in (public_name, template, stored.origin, cache):
    if ',' in text:
      raise programs.ServeError(
        f'{text} has a comma, which separates values of flags of the gateway.'
        ' Rename it, or make a link without a comma.'
      )
  return Model(
    name=_cell_name(name),
    params=params,
    checkpoint=checkpoint,
    overrides=overrides,
    public_name=public_name,
    chat_template=template,
    generation_config=generation_config,
    program_set=program_set,
    notes=(format_note, *stored_lib.unused_settings(stored), *notes),
    job=job,
  )


def _base_name(path: str) -> str:
  return os.path.basename(os.path.abspath(path)).removesuffix('.gguf')


def _cell_name(name: str) -> str:
  """Returns the part of a model id that the admin server accepts."""
  text = re.sub('[^a-z0-9_-]', '-', name.lower())
  return text if text[:1].isalpha() else f'm{text}'


def _checkpoint(directory: str) -> str:
  """Returns the step directory of a PAX checkpoint, or '' if it is none."""
  if os.path.basename(directory.rstrip('/')).startswith('checkpoint_'):
    return directory.rstrip('/')
  step_dir = os.path.join(directory, conversion.CHECKPOINT)
  return step_dir if os.path.isdir(step_dir) else ''


def _choose(
  stored: stored_lib.Stored, options: Options, reserved: int
) -> tuple[str, dict[str, str]]:
  """Returns the serving params of a checkpoint, and their overrides.

  Args:
    stored: The checkpoint.
    options: The user's options.
    reserved: The memory of the other models, in bytes.
  """
  description = stored.description
  params, overrides = options.params, dict(options.overrides)
  if params:
    registry.lookup(params)
  elif description.num_layers is None or description.max_positions is None:
    raise programs.ServeError(
      f'{stored.origin} has neither config.json nor'
      f' {description_lib.FILE_NAME}, so the serving params cannot be chosen.'
      ' Set them with --params. See docs/serving_params.md.'
    )
  else:
    try:
      params = families.named(description.family).serving
    except pax_errors.CheckpointError as e:
      raise programs.ServeError(f'{stored.origin}: {e}') from e
    lengths = _lengths(description.max_positions, options.max_model_len)
    free = options.gpu_bytes or psutil.virtual_memory().available - _OWN_BYTES
    overrides = lengths | _numbers(stored, lengths, free - reserved) | overrides
  overrides_lib.check(params, options.overrides)
  if options.params or options.overrides:
    _check_settings(params, overrides, description)
  return params, overrides


def _check_settings(
  params: str,
  overrides: Mapping[str, str],
  description: description_lib.Description,
) -> None:
  """Raises errors.SaxError for settings that the model server would refuse."""
  # These imports take seconds, and only the user's own values need a check.
  settings = importlib.import_module('saxml_ext.params.settings')
  loading = importlib.import_module('saxml_ext.server.loading.stored_model')
  loading.complete(settings.published(params, overrides), description)


def _lengths(positions: int, requested: int) -> dict[str, str]:
  """Returns the overrides of lengths.

  The limits follow the context: one sample may use all that its prompt leaves.
  """
  if requested > positions:
    raise programs.ServeError(
      f'--max_model_len={requested} is above the {positions} positions for'
      ' which the model was trained. Set at most that.'
    )
  total = requested or positions
  if total < _LEAST_LENGTH:
    raise programs.ServeError(
      f'--max_model_len={total} is too short. Set at least {_LEAST_LENGTH}.'
    )
  chunk = min(total, _CHUNK)
  return {
    'CONTEXT_LEN': str(total),
    'INPUT_SEQ_LEN': str(total - 1),
    'PREFILL_CHUNK_LEN': str(chunk),
    'BUCKET_KEYS': json.dumps([n for n in _BUCKETS if n < chunk]),
    'MAX_DECODE_STEPS': str(min(total // _ANSWER_SHARE, _MOST_ANSWER)),
  }


def _longest(tokens: float) -> int:
  """Returns the longest context whose slot holds at most so many tokens."""
  extra = _BEAMS + 1
  length = tokens * _ANSWER_SHARE / (_ANSWER_SHARE + extra)
  if length > _ANSWER_SHARE * _MOST_ANSWER:
    length = tokens - extra * _MOST_ANSWER
  return int(length)


def _numbers(
  stored: stored_lib.Stored, lengths: Mapping[str, str], free: int
) -> dict[str, str]:
  """Returns the overrides of number formats and slots that fit the memory."""
  sizes = stored.description
  used = accelerators.used(os.environ.get(accelerators.PLATFORMS))
  if stored.matrices == stored_lib.INT4 and used:
    raise programs.ServeError(
      '--quantize=int4 is a number format of CPUs. Use --quantize=int8, or set'
      ' the environment variable JAX_PLATFORMS=cpu.'
    )
  if stored.matrices == stored_lib.FP8 and accelerators.CUDA not in used:
    raise programs.ServeError(
      '--quantize=fp8 is a number format of NVIDIA GPUs, and this program uses'
      ' none. Use --quantize=int8.'
    )
  sums = [sizes.model_dim, sizes.hidden_dim]
  sums.append((sizes.num_heads or 0) * (sizes.head_dim or 0))
  odd = [n for n in sums if n and n % _INT4_GROUP]
  if stored.matrices == stored_lib.INT4 and odd:
    raise programs.ServeError(
      f'--quantize=int4 does not support {stored.origin}: matrices sum over'
      f' {odd[0]} numbers, which is no multiple of {_INT4_GROUP}. Use'
      ' --quantize=int8.'
    )
  in_float = stored.matrices == stored_lib.FLOAT
  # Beside int8 matrices, an embedding and a head in bfloat16 are exact enough.
  dtype = sizes.dtype or 'float32' if in_float else 'bfloat16'
  answer = int(lengths['MAX_DECODE_STEPS'])
  tokens = int(lengths['CONTEXT_LEN']) + (_BEAMS + 1) * answer
  width = (sizes.num_kv_heads or sizes.num_heads or 0) * (sizes.head_dim or 0)
  values = 2 * (sizes.num_layers or 0) * width
  slot = values * _KV_BYTES * tokens
  for slots in _SLOTS:
    needed = int(_MARGIN * (stored.weights + slots * slot))
    if needed <= free:
      break
  else:
    size = conversion.size_text
    length = _longest((free / _MARGIN - stored.weights) / (slot / tokens or 1))
    fits = f' ({length} fits)' if length >= _LEAST_LENGTH else ''
    raise programs.ServeError(
      f'The model {stored.origin} needs {size(needed)} of memory'
      f' ({size(stored.weights)} of weights in'
      f' {dtype if in_float else stored.matrices}), and {size(free)} are free.'
      f' Use {"--quantize=int8, " if in_float else ""}a smaller'
      f' --max_model_len{fits}, or a larger machine.'
    )
  steps = [] if used else _INTERVALS
  interval = next((n for size, n in steps if stored.weights < size), 1)
  chosen = {
    'BATCH_SIZE': str(slots),
    'STREAM_INTERVAL_STEPS': str(interval),
    'ram': str(needed),
  }
  if dtype != 'float32':
    chosen |= dict.fromkeys(('FPROP_DTYPE', 'MODEL_DTYPE'), json.dumps(dtype))
  if not in_float:
    # Beside int8 matrices, activations in 8 bits would cost small models a part
    # of their answers.
    fine = stored.matrices.replace('int8', 'int8_fine')
    chosen['QUANTIZATION'] = json.dumps(fine)
  return chosen
