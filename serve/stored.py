"""Describes checkpoints before they are served or converted."""

from collections.abc import Mapping
import dataclasses
import os
import re

from converters.hf import tokenizer_files
from saxml_ext.common import errors as sax_errors
from saxml_ext.http.protocol import templates
from saxml_ext.pax import description as description_lib
from serve import conversion
from serve import programs

FLOAT, INT8, INT4, FP8 = programs.NUMBER_FORMATS
GENERATION_CONFIG = 'generation_config.json'
# Base models that have no template of their own get this one.
_BASE_TEMPLATE = 'dialogue'


@dataclasses.dataclass(frozen=True)
class Stored:
  """The properties of a model's checkpoint, which may not be converted yet.

  Attributes:
    origin: The path of the model, for messages.
    description: The description of the model.
    weights: The size of the weights in memory, in bytes.
    matrices: The number format of the matrices as they are served: FLOAT, INT8,
      INT4 or FP8.
    files: The contents of the tokenizer's files by name.
  """

  origin: str
  description: description_lib.Description
  weights: int
  matrices: str
  files: Mapping[str, bytes]


def open_pax(
  directory: str, checkpoint: str, quantize: str
) -> tuple[Stored, str]:
  """Returns the properties of a PAX checkpoint, and a note about its format."""
  description = description_lib.read(checkpoint)
  weights = conversion.bytes_below(checkpoint)
  matrices = INT8 if _is_int8(checkpoint) else FLOAT
  if matrices == INT8 and quantize in (FLOAT, INT4, FP8):
    raise programs.ServeError(
      f'{directory} has int8 matrices, so --quantize={quantize} has no effect.'
      ' Omit it, or serve the checkpoint that was quantized.'
    )
  chosen, reason = description.dtype or 'float32', 'they are stored so'
  if matrices == INT8:
    chosen = INT8
  elif quantize in (INT8, INT4, FP8):
    matrices = chosen = quantize
    reason = f'of --quantize={quantize}'
    weights //= conversion.FLOAT_BYTES[description.dtype or 'float32']
  tokenizer = tokenizer_files.collect(directory)
  stored = Stored(directory, description, weights, matrices, tokenizer)
  return stored, f'Matrices are {chosen}, because {reason}.'


def _is_int8(checkpoint: str) -> bool:
  """Returns True if the matrices of a PAX checkpoint are int8."""
  variables = os.path.join(checkpoint, 'state')
  return os.path.isdir(variables) and any(
    name.endswith('_quantized_scale') for name in os.listdir(variables)
  )


def number_format(
  source: conversion.Source, quantize: str
) -> tuple[str, str, str]:
  """Returns the float type, the format of matrices, and a note that says why."""
  matrices = quantize or FLOAT
  reason = f'the weights are {source.stored_type}'
  if quantize:
    reason = f'of --quantize={quantize}'
  elif source.quantization:
    matrices, reason = INT8, f'the weights are {source.quantization}'
  dtype = source.float_type(matrices != FLOAT)
  if dtype not in ('float32', source.stored_type):
    reason += ', and float32 needs more than half of the free memory'
  other = FLOAT if matrices == INT8 else INT8
  hint = '' if quantize else f' --quantize={other} changes it.'
  chosen = dtype if matrices == FLOAT else matrices
  return dtype, matrices, f'Matrices are {chosen}, because {reason}.{hint}'


def chat_template(stored: Stored, chosen: str) -> tuple[str, tuple[str, ...]]:
  """Returns the chat template, and a note if it is not the model's own."""
  if chosen:
    try:
      templates.find(chosen)
    except sax_errors.SaxError as e:
      raise programs.ServeError(f'--chat_template={chosen}: {e.message}') from e
    return chosen, ()
  # The gateway's message about a damaged file names the remedy.
  config = stored.files.get('tokenizer_config.json', b'')
  has_own = re.search(rb'"chat_template"\s*:\s*["\[]', config)
  if has_own or 'chat_template.jinja' in stored.files:
    if os.path.isdir(stored.origin):
      templates.find(stored.origin)
    return '', ()
  return _BASE_TEMPLATE, (
    f'The model has no chat template, so chats use "{_BASE_TEMPLATE}". See'
    ' --chat_template.',
  )


def unused_settings(stored: Stored) -> tuple[str, ...]:
  """Returns a note about settings of generation_config.json without effect."""
  _, ignored = templates.generation_defaults(
    stored.files.get(GENERATION_CONFIG, b'{}'),
    f'{stored.origin}/{GENERATION_CONFIG}',
  )
  if not ignored:
    return ()
  return (f'{GENERATION_CONFIG}: {", ".join(ignored)} cannot be applied.',)
