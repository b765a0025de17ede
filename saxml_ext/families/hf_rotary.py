"""Reads and writes the settings of rotary positions in config.json."""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import math
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import hf_entries
from saxml_ext.pax import errors

# The places of the settings of rotary positions. transformers reads the first
# that is not empty, and takes what it lacks from the top level.
_SOURCES = ('rope_scaling', 'rope_parameters')
_LLAMA3, _LINEAR, _YARN, LONGROPE = 'llama3', 'linear', 'yarn', 'longrope'
# The rope_types. Up to max_position_embeddings, `dynamic` computes the same as
# `default`, and longer texts are refused.
TYPES = ('default', _LLAMA3, _LINEAR, 'dynamic', _YARN, LONGROPE)
# The entries of the fields of architecture.RotaryScaling.
LENGTH = 'original_max_position_embeddings'
_SCALING_KEYS = ('factor', 'low_freq_factor', 'high_freq_factor', LENGTH)
SCALING_LIMIT = 1e9
_GAIN, _SHORT = 'attention_factor', 'short_factor'


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
  usual = {'rope_type': TYPES[0], **{k: defaults.get(k) for k in names}}
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
  path: str,
  entries: hf_entries.Entries,
  sizes: Mapping[str, Any],
  types: tuple[str, ...] = TYPES,
) -> dict[str, Any]:
  """Returns the fields of HFConfig that the scaling of rotary positions sets.

  These are `rotary_scaling`, None for no scaling, and `max_positions`.

  Args:
    path: The path of config.json, for messages.
    entries: Its entries, with the settings that `merge` returned.
    sizes: The fields of HFConfig that are known.
    types: The accepted values of `rope_type`.

  Raises:
    errors.CheckpointError: The settings are not supported.
  """
  entries.check('rope_type', types)
  kind = entries.get('rope_type')
  fields = {'max_positions': sizes['max_positions'], 'rotary_scaling': None}
  if kind == TYPES[0]:
    return fields
  length = entries.integer(LENGTH, 1)
  try:
    if kind == _LLAMA3:
      factor, low, high = (_number(entries, key) for key in _SCALING_KEYS[:3])
      value = architecture.RotaryScaling(factor, low, high, length)
    elif kind == _YARN:
      value = _yarn(entries, sizes, length)
    elif kind in (_LINEAR, 'dynamic'):
      value = linear(_number(entries, 'factor'))
      if kind == 'dynamic':
        return fields
    else:
      # Longer texts have other factors, from their first token on. So a cache
      # of keys cannot grow beyond this length.
      fields['max_positions'] = min(fields['max_positions'], length)
      value = _longrope(entries, sizes, length)
  except errors.CheckpointError:  # Its message has the path.
    raise
  except ValueError as e:
    raise errors.CheckpointError(f'{path}: {e}') from e
  return {**fields, 'rotary_scaling': value}


def _number(
  entries: hf_entries.Entries, key: str, default: float | None = None
) -> float:
  """Returns a positive number; null stands for the default."""
  if entries.get(key) is None and default is not None:
    return default
  return entries.number(key, None, SCALING_LIMIT)


def _yarn(
  entries: hf_entries.Entries, sizes: Mapping[str, Any], length: int
) -> architecture.RotaryScaling:
  """Returns the scaling of rope_type "yarn"; see arXiv:2309.00071."""
  factor = _number(entries, 'factor', sizes['max_positions'] / length)
  usual = _yarn_gain(factor)
  if entries.get('mscale') and entries.get('mscale_all_dim'):
    usual = _yarn_gain(factor, _number(entries, 'mscale'))
    usual /= _yarn_gain(factor, _number(entries, 'mscale_all_dim'))
  pairs = sizes['rotary_dim'] // 2
  ends = [
    pairs
    * math.log(length / (_number(entries, key, turns) * 2 * math.pi))
    / math.log(sizes['rotary_base'])
    for key, turns in (('beta_fast', 32.0), ('beta_slow', 1.0))
  ]
  if entries.check('truncate', (True, False)):
    ends = [math.floor(ends[0]), math.ceil(ends[1])]
  low, high = max(ends[0], 0), min(ends[1], 2 * pairs - 1)
  width = high - low or 0.001
  slow = [min(max((i - low) / width, 0), 1) for i in range(pairs)]
  return divided(
    [1 / (part / factor + 1 - part) for part in slow],
    _number(entries, _GAIN, usual),
  )


def _yarn_gain(factor: float, multiple: float = 1.0) -> float:
  return 0.1 * multiple * math.log(factor) + 1 if factor > 1 else 1.0


def _longrope(
  entries: hf_entries.Entries, sizes: Mapping[str, Any], length: int
) -> architecture.RotaryScaling:
  """Returns the scaling of rope_type "longrope" up to the original length."""
  factor = _number(entries, 'factor', sizes['max_positions'] / length)
  usual = 1.0
  if factor > 1:
    usual = math.sqrt(1 + math.log(factor) / math.log(length))
  pairs, values = sizes['rotary_dim'] // 2, entries.get(_SHORT)
  if not (
    isinstance(values, list)
    and len(values) == pairs
    and all(type(x) in (int, float) and 0 < x < SCALING_LIMIT for x in values)
  ):
    raise entries.error(_SHORT, f'a list of {pairs} positive numbers')
  return divided(values, _number(entries, _GAIN, usual))


def divided(
  divisors: Sequence[float], gain: float
) -> architecture.RotaryScaling:
  """Returns a scaling that is not a formula.

  Args:
    divisors: The divisor of each pair's frequency.
    gain: The factor of all sines and cosines.
  """
  return architecture.RotaryScaling(
    1.0, 1.0, 4.0, 1, tuple(map(float, divisors)), gain
  )


def linear(factor: float) -> architecture.RotaryScaling:
  """Returns a scaling of all positions, as in rope_type "linear".

  No wavelength is below 2 pi. So all are long for an original length of 1.

  Args:
    factor: The divisor of positions.
  """
  return architecture.RotaryScaling(factor, 1.0, 4.0, 1)


def document(
  value: architecture.RotaryScaling, positions: int
) -> dict[str, Any]:
  """Returns the entries of config.json for a scaling.

  Args:
    value: The scaling.
    positions: The maximum number of positions.
  """
  if value.divisors:
    factors = list(value.divisors)
    settings: dict[str, Any] = {
      'rope_type': LONGROPE,
      _SHORT: factors,
      'long_factor': factors,
      _GAIN: value.gain,
    }
    return {'rope_scaling': settings, LENGTH: positions}
  if value == linear(value.factor):
    settings = {'rope_type': _LINEAR, 'factor': value.factor}
  else:
    fields = zip(_SCALING_KEYS, dataclasses.astuple(value))
    settings = {'rope_type': _LLAMA3, **dict(fields)}
  return {'rope_scaling': settings}
