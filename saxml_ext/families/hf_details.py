"""Reads and writes the numbers of config.json that few families have."""

from collections.abc import Mapping
import dataclasses
import struct
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import hf_entries

_LIMIT = 1e9
_MOST_LAYERS = 10_000
_ROTATED, _INTERVAL = 'no_rope_layers', 'no_rope_layer_interval'
# The formats whose floats keep fewer bits than float32, and how many are lost.
_LOST_BITS = {'bfloat16': 16, 'float16': 13}


@dataclasses.dataclass(frozen=True)
class Names:
  """The entries of a family for the fields of `architecture.Details`.

  Attributes:
    factors: The key of each field that is a number. A missing key is 1.
    rooted_embedding: True if embeddings are multiplied by the root of their
      width, rounded to the model's number format.
    skips_rotation: True if `no_rope_layers` has 0 for layers without rotary
      positions.
  """

  factors: Mapping[str, str] = dataclasses.field(default_factory=dict)
  rooted_embedding: bool = False
  skips_rotation: bool = False


def read(
  entries: hf_entries.Entries,
  names: Names,
  layers: int,
  width: int,
  head_dim: int,
) -> architecture.Details:
  """Returns the numbers of a model.

  Args:
    entries: The entries of config.json.
    names: The names that the family has.
    layers: The number of layers.
    width: The width of embeddings.
    head_dim: The width of a head.

  Raises:
    errors.CheckpointError: An entry is not usable.
  """
  values: dict[str, Any] = {
    field: entries.number(key, 1.0, _LIMIT)
    for field, key in names.factors.items()
  }
  if values.get('attention') == head_dim**-0.5:
    values['attention'] = None  # The factor of most families.
  if names.rooted_embedding:
    dtype = entries.get('dtype', entries.get('torch_dtype', 'float32'))
    values['embedding'] = _rounded(width**0.5, _LOST_BITS.get(str(dtype), 0))
  if names.skips_rotation:
    if layers > _MOST_LAYERS:
      raise entries.error('num_hidden_layers', f'at most {_MOST_LAYERS}')
    interval = entries.integer(_INTERVAL, 4)
    usual = [int((i + 1) % interval != 0) for i in range(layers)]
    rotated = entries.get(_ROTATED, usual)
    if not isinstance(rotated, list) or len(rotated) != layers:
      raise entries.error(_ROTATED, f'a list of {layers} numbers, 0 or 1')
    values['unrotated'] = tuple(i for i, x in enumerate(rotated) if not x)
  return architecture.Details(**values)


def _rounded(value: float, lost: int) -> float:
  """Returns a number above 1 in a float format; ties go to even."""
  [bits] = struct.unpack('<I', struct.pack('<f', value))
  half = (1 << lost) >> 1
  if lost:
    bits += half - 1 + (bits >> lost & 1)
  [result] = struct.unpack('<f', struct.pack('<I', bits >> lost << lost))
  return result


def document(
  details: architecture.Details, names: Names, layers: int, head_dim: int
) -> dict[str, Any]:
  """Returns the entries of config.json for the numbers of a model.

  Args:
    details: The numbers.
    names: The names that the family has.
    layers: The number of layers.
    head_dim: The width of a head.
  """
  result: dict[str, Any] = {}
  for field, key in names.factors.items():
    value = getattr(details, field)
    result[key] = head_dim**-0.5 if value is None else value
  if names.skips_rotation:
    result[_ROTATED] = [int(i not in details.unrotated) for i in range(layers)]
  return result
