"""Balances the channels of a layer before rounding, with equal results.

A few channels of a layer's inputs are much larger than the others. In the next
matrix, the matching rows must share a scale with rows that need more precision.
If activations are int8, the large channels use the bits of the others. To
balance a channel, its producer is divided by a number, and the matrix that
reads it is multiplied by the same number:

  made by                                 read by
  layer_norm.scale and .bias              combined_qkv.w, ffn_layer1.linear.w
  ff_layer.layer_norm.scale and .bias,    ffn_layer1.linear.w
    where there is one
  the values in combined_qkv.w and .b,    post.w
    or in value.w and .b

Heads that share values also share the numbers. The inputs of ffn_layer2 are
outputs of a GELU, which cannot be scaled.

The numbers are powers of two, so the float model stays the same to the last
bit. The balance follows Xiao et al., "SmoothQuant", arXiv:2211.10438.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from converters.quantize import int8_matrix

# Larger exponents could exceed the range of bfloat16 and float32.
_MAX_EXPONENT = 24

# The fields of the variables that produce each field of `engine.model.Taps`.
_MADE_BY = {
  'norm': ('layers.norm.scale', 'layers.norm.bias'),
  'mixed': (
    *('layers.qkv', 'layers.qkv_bias'),
    *('layers.value', 'layers.value_bias'),
  ),
  'fed': ('layers.ff_norm.scale', 'layers.ff_norm.bias'),
}

# The exponents of the powers of two that divide the channels, by field of
# `engine.model.Taps`. Without "fed", the feed-forward layer reads the norm of
# attention.
Exponents: TypeAlias = Mapping[str, tuple[int, ...]]


def choose(
  variables: Mapping[str, np.ndarray],
  strength: float,
  stats: Mapping[str, int8_matrix.InputStats] | None,
  norms: bool = True,
) -> Exponents:
  """Returns the exponents of a layer.

  Args:
    variables: The variables of the layer.
    strength: The share of the inputs' spread that moves to the weights. With 0
      only the spread of the weights counts.
    stats: The statistics of the inputs; may be None if the strength is 0.
    norms: True if norms make the inputs of matrices, and their scales are
      stored as they are. Otherwise norms stay, and their exponents are 0.

  Raises:
    ValueError: The strength is above 0, but there are no statistics.
  """
  if strength and stats is None:
    raise ValueError(
      f'smoothing of strength {strength:g} needs statistics of the inputs.'
      ' Calibrate, or use strength 0.'
    )
  rows = {name: int8_matrix.TABLE.named(name) for name in variables}
  fields = {row.field for row in rows.values() if row}
  peaks: dict[str, np.ndarray] = {}
  for name, row in rows.items():
    if row and row.inputs in _MADE_BY:
      matrix = int8_matrix.as_rows(variables[name], row.contracted_dims)
      peak = np.abs(matrix).max(0).astype(np.float32)
      tap = _tap(row.inputs, _MADE_BY['fed'][0] in fields)
      peaks[tap] = np.maximum(peaks.get(tap, 0), peak)

  # The shape of values that several heads may share: [heads, width].
  shared = [
    variables[name].shape[1:]
    for name, row in rows.items()
    if row and row.field == 'layers.value'
  ]

  def exponents(name: str, weight_peak: np.ndarray) -> tuple[int, ...]:
    if name != 'mixed' and not norms:
      return (0,) * len(weight_peak)
    peak = stats[name].peak if stats and strength else np.ones_like(weight_peak)
    if name == 'mixed' and shared:
      peak, weight_peak = (_largest(x, *shared[0]) for x in (peak, weight_peak))
    usable = (peak > 0) & (weight_peak > 0)
    peak, weight_peak = (
      np.where(usable, x, 1).astype(np.float64) for x in (peak, weight_peak)
    )
    best = strength * np.log2(peak) - (1 - strength) * np.log2(weight_peak)
    whole = np.clip(np.rint(best), -_MAX_EXPONENT, _MAX_EXPONENT)
    return tuple(int(n) for n in np.where(usable, whole, 0))

  return {tap: exponents(tap, peaks[tap]) for tap in _MADE_BY if tap in peaks}


def apply(
  variables: Mapping[str, np.ndarray], exponents: Exponents
) -> dict[str, np.ndarray]:
  """Returns the variables of a layer after smoothing."""
  return {
    name: apply_to_one(name, value, exponents)
    for name, value in variables.items()
  }


def apply_to_one(
  name: str, value: np.ndarray, exponents: Exponents
) -> np.ndarray:
  """Returns one variable of a layer after smoothing."""
  row = int8_matrix.TABLE.named(name)
  if row is None:
    return value
  tap = _tap(row.inputs or '', 'fed' in exponents)
  if tap in exponents:
    value = _times(value, exponents[tap], row.contracted_dims)
  for tap, fields in _MADE_BY.items():
    if row.field in fields and tap in exponents:
      *parts, made = value if row.parts else [value]
      negative = [-n for n in exponents[tap]]
      if tap == 'mixed':
        negative = _value_exponents(negative, *made.shape[-2:])
      made = _times(made, negative, range(made.ndim)[-2:])
      value = np.stack([*parts, made]) if parts else made
  return value


def apply_to_stats(
  stats: Mapping[str, int8_matrix.InputStats], exponents: Exponents
) -> dict[str, int8_matrix.InputStats]:
  """Returns the input statistics after smoothing."""
  result = dict(stats)
  for name, values in exponents.items():
    size = np.exp2(-np.asarray(values, np.float32))
    old = stats[name]
    hessian = old.hessian
    if hessian is not None:
      hessian = hessian * size * size[:, None]
    result[name] = int8_matrix.InputStats(
      old.peak * size, old.mean_square * size * size, hessian
    )
  if 'fed' not in exponents:
    result['fed'] = result['norm']
  return result


def _tap(inputs: str, two_norms: bool) -> str:
  return 'norm' if inputs == 'fed' and not two_norms else inputs


def _largest(peaks: np.ndarray, heads: int, width: int) -> np.ndarray:
  """Returns peaks [N * H]; heads that share values get their common maximum."""
  groups = peaks.reshape(heads, -1, width)
  largest = groups.max(1, keepdims=True)
  return np.broadcast_to(largest, groups.shape).reshape(-1)


def _value_exponents(
  numbers: Sequence[int], heads: int, width: int
) -> np.ndarray:
  """Returns numbers [N * H] reduced to one set for each head of values."""
  return np.reshape(numbers, (heads, -1, width))[:, 0].reshape(-1)


def _times(
  value: np.ndarray, exponents: Sequence[int], dims: Sequence[int]
) -> np.ndarray:
  """Returns value * 2**exponents along dims as a new array of the same type."""
  shape = [n if i in dims else 1 for i, n in enumerate(value.shape)]
  factors = np.exp2(np.asarray(exponents, np.float32)).astype(value.dtype)
  return value * factors.reshape(shape)
