"""Reads and writes the settings of rotary positions in config.json."""

from collections.abc import Mapping
import dataclasses
import itertools
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import hf_entries
from saxml_ext.pax import errors

# The places of the settings of rotary positions. transformers reads the first
# that is not empty, and takes what it lacks from the top level.
_SOURCES = ('rope_scaling', 'rope_parameters')
_LLAMA3, _LINEAR = 'llama3', 'linear'
# Up to max_position_embeddings, `dynamic` computes the same as `default`, and
# longer texts are refused.
_ROPE_TYPES = ('default', _LLAMA3, _LINEAR, 'dynamic')
# The entries of the fields of architecture.RotaryScaling.
LENGTH = 'original_max_position_embeddings'
_SCALING_KEYS = ('factor', 'low_freq_factor', 'high_freq_factor', LENGTH)
_SCALING_LIMIT = 1e9


def merge(
  path: str,
  document: Mapping[str, Any],
  names: Mapping[str, str],
  defaults: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns the settings of rotary positions, with the names of transformers 5.

  Args:
    path: The path of config.json, for messages.
    document: The contents of the file.
    names: The name at the top level of each setting; empty if the family has no
      such settings.
    defaults: The values of missing entries, of these settings and of others.

  Raises:
    errors.CheckpointError: A place does not have an object, or places have
      different values.
  """
  triples = []
  for source in _SOURCES:
    values = document.get(source)
    if values is not None and not (names and isinstance(values, dict)):
      expected = 'an object with a rope_type, or null' if names else 'null'
      raise hf_entries.Entries(path, document).error(source, expected)
    if values:
      kinds = (('rope_type', values.get(key)) for key in ('rope_type', 'type'))
      triples.append([(source, k, v) for k, v in (*kinds, *values.items())])
  names = {LENGTH: LENGTH, **names}
  usual = {'rope_type': _ROPE_TYPES[0], **{k: defaults.get(k) for k in names}}
  return hf_entries.merge(
    path,
    (
      *itertools.chain(*triples[:1]),
      *((name, key, document.get(name)) for key, name in names.items()),
      *((hf_entries.DEFAULTS, key, value) for key, value in usual.items()),
      *itertools.chain(*triples[1:]),
      *((key, key, document.get(key)) for key in names),
    ),
  )


def scaling(
  path: str, entries: hf_entries.Entries
) -> architecture.RotaryScaling | None:
  """Returns the scaling of rotary positions, or None for no scaling.

  Args:
    path: The path of config.json, for messages.
    entries: Its entries, with the settings that `merge` returned.

  Raises:
    errors.CheckpointError: The settings are not supported.
  """
  entries.check('rope_type', _ROPE_TYPES)
  kind = entries.get('rope_type')
  if kind == _ROPE_TYPES[0]:
    return None
  keys = _SCALING_KEYS[:3] if kind == _LLAMA3 else _SCALING_KEYS[:1]
  factor, *bounds = (entries.number(k, None, _SCALING_LIMIT) for k in keys)
  length = entries.integer(LENGTH, 1)
  try:
    if kind == _LLAMA3:
      low, high = bounds
      return architecture.RotaryScaling(factor, low, high, length)
    return linear(factor) if kind == _LINEAR else None
  except ValueError as e:
    raise errors.CheckpointError(f'{path}: {e}') from e


def linear(factor: float) -> architecture.RotaryScaling:
  """Returns a scaling of all positions, as in rope_type "linear".

  No wavelength is below 2 pi. So all are long for an original length of 1.

  Args:
    factor: The divisor of positions.
  """
  return architecture.RotaryScaling(factor, 1.0, 4.0, 1)


def document(value: architecture.RotaryScaling) -> dict[str, Any]:
  """Returns the contents of `rope_scaling`."""
  if value == linear(value.factor):
    return {'rope_type': _LINEAR, 'factor': value.factor}
  fields = zip(_SCALING_KEYS, dataclasses.astuple(value))
  return {'rope_type': _LLAMA3, **dict(fields)}
