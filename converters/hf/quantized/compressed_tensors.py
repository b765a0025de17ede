"""Reads weights of compressed-tensors, which llm-compressor writes.

Integers of 8 bits (`int-quantized`) and FP8 (`float-quantized`) are stored as
`weight`, and packed integers (`pack-quantized`) as `weight_packed`. Scales of
activations are ignored.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import numpy as np

from converters.hf.quantized import fp8
from converters.hf.quantized import scheme
from saxml_ext.families import hf_entries

_FORMATS = (
  'int-quantized',
  'float-quantized',
  'naive-quantized',
  'pack-quantized',
)
_MIXED = 'mixed-precision'
_STRATEGIES = ('tensor', 'channel', 'group', 'block')
_INT, _FLOAT = 'int', 'float'
# The ends of the names of tensors; the last four follow the first.
_WEIGHT = '.weight'
_PACKED, _SCALE, _ZEROS, _GROUPS = '_packed', '_scale', '_zero_point', '_g_idx'


@dataclasses.dataclass(frozen=True)
class _Args:
  """The settings of the weights in one of `config_groups`.

  Attributes:
    bits: The number of bits of a code.
    type: _INT or _FLOAT.
    symmetric: True if the code of zero is 0.
    block: The rows and columns that share a scale; 0 means all of them.
  """

  bits: int
  type: str
  symmetric: bool
  block: tuple[int, int]

  def block_of(self, shape: tuple[int, ...]) -> tuple[int, int]:
    return self.block[0] or shape[0], self.block[1] or shape[1]


def from_settings(settings: hf_entries.Entries) -> scheme.Scheme:
  """Returns the scheme of `quantization_config`; see methods.read."""
  kind = settings.check('format', (*_FORMATS, _MIXED))
  sparsity = settings.get('sparsity_config') or {}
  if not isinstance(sparsity, dict) or sparsity.get('format') not in (
    None,
    'dense',
  ):
    raise settings.error('sparsity_config', 'null or the format "dense"')
  transform = settings.get('transform_config') or {}
  if not isinstance(transform, dict) or transform.get('config_groups'):
    raise settings.error('transform_config', 'null')
  groups = settings.get('config_groups')
  if not isinstance(groups, dict) or not groups:
    raise settings.error('config_groups', 'a table of groups')
  args = [_args(settings, group) for group in groups.values()]
  return scheme.Scheme(
    f'compressed-tensors {kind}', functools.partial(_find, args=args)
  )


def _args(settings: hf_entries.Entries, group: Any) -> _Args:
  weights = group.get('weights') if isinstance(group, dict) else None
  if not isinstance(weights, dict):
    raise settings.error('config_groups', 'the settings of `weights`')
  path = 'config_groups: weights'
  if group.get('format') is not None:
    settings.nested(path, group).check('format', _FORMATS)
  entries = settings.nested(path, weights)
  kind = entries.check('type', (_INT, _FLOAT))
  bits = entries.check('num_bits', (8,) if kind == _FLOAT else (8, 4, 2))
  size = entries.get('group_size')
  default = 'channel' if size == -1 else 'group' if size else 'tensor'
  strategy = entries.check('strategy', (default, *_STRATEGIES))
  block = {'tensor': (0, 0), 'channel': (1, 0)}.get(strategy)
  if strategy == 'group':
    block = 1, entries.integer('group_size', None)
  elif block is None:
    block = fp8.block_size(entries, 'block_structure')
  return _Args(bits, kind, entries.check('symmetric', (True, False)), block)


def _find(
  tensors: scheme.Tensors, args: Sequence[_Args]
) -> dict[str, scheme.Weight]:
  weights = {}
  for name, stem in tensors.named(_WEIGHT + _PACKED):
    shape = _shape(tensors, name, f'{stem}{_WEIGHT}_shape')
    words = {
      a: (shape[0], scheme.num_words(shape[1], a.bits))
      for a in args
      if a.type == _INT
    }
    stored = tensors.check(name, name, ('int32',), *words.values())
    fitting = [a for a, size in words.items() if size == stored]
    weights[stem + _WEIGHT] = _weight(
      tensors, name, stem + _WEIGHT, shape, fitting
    )
  for name, _ in tensors.named(_WEIGHT):
    kind = {'int8': _INT, fp8.TYPE: _FLOAT}.get(tensors.type_of(name))
    shape = tensors.shapes[name]
    if kind and len(shape) == 2 and 0 not in shape:
      fitting = [a for a in args if a.type == kind]
      weights[name] = _weight(tensors, name, name, shape, fitting)
  return weights


def _weight(
  tensors: scheme.Tensors,
  codes: str,
  stem: str,
  shape: tuple[int, ...],
  args: Sequence[_Args],
) -> scheme.Weight:
  """Checks the tensors of a matrix and returns it.

  Args:
    tensors: The tensors of the checkpoint.
    codes: The tensor with the codes.
    stem: The prefix of the other tensors' names.
    shape: The shape of the matrix.
    args: The groups of settings that may apply.
  """
  if not args:
    raise tensors.error(
      codes, f'is {tensors.type_of(codes)}, but config_groups has no such type'
    )
  forms = {
    form: a
    for a in reversed(args)
    for form in scheme.scale_shapes(shape, a.block_of(shape))
  }
  form = tensors.check(stem + _SCALE, codes, scheme.FLOATS, *forms)
  chosen = forms[form]
  block = chosen.block_of(shape)
  has_zeros = stem + _ZEROS in tensors.shapes or not chosen.symmetric
  if has_zeros and codes.endswith(_PACKED):
    rows, columns = scheme.scale_shapes(shape, block)[0]
    words = scheme.num_words(rows, chosen.bits), columns
    tensors.check(stem + _ZEROS, codes, ('int32',), words)
  elif has_zeros:
    tensors.check(stem + _ZEROS, codes, ('int8',), form)
  if stem + _GROUPS in tensors.shapes:
    tensors.check(stem + _GROUPS, codes, scheme.INDICES, shape[1:])

  def read_scales() -> np.ndarray:
    scales = tensors.read(stem + _SCALE).astype(np.float32).reshape(-1)
    return np.repeat(scales, block[0])[: shape[0]]

  is_rows = chosen.type == _INT and block[1] >= shape[1] and not has_zeros
  parts = (stem + part for part in (_SCALE, _ZEROS, _GROUPS, '_shape'))
  return scheme.Weight(
    shape,
    (codes, *(part for part in parts if part in tensors.shapes)),
    functools.partial(_read, tensors, codes, stem, shape, chosen.bits, block),
    read_scales if is_rows else None,
  )


def _read(
  tensors: scheme.Tensors,
  name: str,
  stem: str,
  shape: tuple[int, ...],
  bits: int,
  block: tuple[int, int],
) -> np.ndarray:
  """Returns a checked matrix in float32.

  Args:
    tensors: The tensors of the checkpoint.
    name: The tensor with the codes.
    stem: The prefix of the other tensors' names.
    shape: The shape of the matrix.
    bits: The number of bits of a code.
    block: The rows and columns that share a scale.
  """
  codes, zeros = tensors.read(name), None
  grid = scheme.scale_shapes(shape, block)[0]
  if stem + _ZEROS in tensors.shapes:
    zeros = tensors.read(stem + _ZEROS)
  if name.endswith(_PACKED):
    # Packed codes count from the least code, and those of zero do so, too.
    codes = scheme.unpack(codes, bits)[:, : shape[1]]
    if zeros is None:
      zeros = np.full(grid, 1 << (bits - 1))
    else:
      zeros = scheme.unpack(zeros.T, bits).T[: grid[0]]
  groups = scheme.read_groups(tensors, stem + _GROUPS, grid[1])
  scales = tensors.read(stem + _SCALE)
  return scheme.dequantize(codes, scales, block, zeros, groups)


def _shape(tensors: scheme.Tensors, codes: str, name: str) -> tuple[int, ...]:
  """Returns the shape of a packed matrix."""
  tensors.check(name, codes, scheme.INDICES, (2,))
  shape = tuple(tensors.read(name).tolist())
  if not all(0 < size < hf_entries.INT_LIMIT for size in shape):
    raise tensors.error(
      name, f'is {list(shape)}. Expected the sizes of a matrix'
    )
  return shape
