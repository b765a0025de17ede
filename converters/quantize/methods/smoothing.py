"""Evens out a layer's channels before it is rounded, without changing it.

A few channels of a layer's inputs are much larger than the others. The rows of
the next matrix that meet them then have to share a scale with rows that are
needed more precisely, and where activations are made int8 the large channels
take the others' bits. Dividing a channel by a number where it is made, and
multiplying the matrix where it is read, moves size from one to the other:

  made by                                 read by
  layer_norm.scale and .bias              combined_qkv.w, ffn_layer1.linear.w
  the values in combined_qkv.w            post.w

(The inputs of ffn_layer2 come out of a GELU, which cannot be scaled.) The
numbers are powers of two, so that in float the model stays the same to the
last bit, and balance is after Xiao et al., "SmoothQuant", arXiv:2211.10438.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from converters.quantize import input_stats
from converters.quantize import matrix_table

# Beyond these bfloat16 and float32 would come near their ends.
_MAX_EXPONENT = 24

_NORM = ('layer_norm.scale', 'layer_norm.bias')
_QKV = 'self_attention.combined_qkv.w'
_POST = 'self_attention.post.w'
_UP = 'ff_layer.ffn_layer1.linear.w'


@dataclasses.dataclass(frozen=True)
class Exponents:
  """By what powers of two channels are divided where they are made.

  norm [D], mixed [N * H]: as the fields of `engine.model.Taps`.
  """

  norm: tuple[int, ...]
  mixed: tuple[int, ...]


def choose(
  variables: Mapping[str, np.ndarray],
  index: int,
  strength: float,
  stats: Mapping[str, input_stats.InputStats] | None,
) -> Exponents:
  """Exponents of a layer.

  Args:
    variables: of the layer.
    index: of the layer.
    strength: what share of the inputs' spread goes into the weights; 0 evens
      out the weights alone.
    stats: of the inputs; may be None if the strength is 0.

  Raises:
    ValueError: a strength above 0 comes without stats.
  """
  prefix = matrix_table.layer_prefix(index)
  qkv, post, up = (
    np.abs(variables[prefix + name]).astype(np.float32)
    for name in (_QKV, _POST, _UP)
  )

  def exponents(name: str, weight_peak: np.ndarray) -> tuple[int, ...]:
    if not strength:
      peak = np.ones_like(weight_peak)
    elif stats is None:
      raise ValueError(
        f'smoothing of strength {strength:g} needs statistics of the inputs;'
        ' calibrate, or use strength 0'
      )
    else:
      peak = stats[name].peak
    usable = (peak > 0) & (weight_peak > 0)
    peak, weight_peak = (
      np.where(usable, x, 1).astype(np.float64) for x in (peak, weight_peak)
    )
    best = strength * np.log2(peak) - (1 - strength) * np.log2(weight_peak)
    whole = np.clip(np.rint(best), -_MAX_EXPONENT, _MAX_EXPONENT)
    return tuple(int(n) for n in np.where(usable, whole, 0))

  return Exponents(
    exponents('norm', np.maximum(qkv.max((0, 2, 3)), up.max(1))),
    exponents('mixed', post.max(0).reshape(-1)),
  )


def apply(
  variables: Mapping[str, np.ndarray], index: int, exponents: Exponents
) -> dict[str, np.ndarray]:
  """A layer's variables with sizes moved; the others as they are."""
  return {
    name: apply_to_one(name, value, index, exponents)
    for name, value in variables.items()
  }


def apply_to_one(
  name: str, value: np.ndarray, index: int, exponents: Exponents
) -> np.ndarray:
  """One variable of layer `index` with sizes moved."""
  suffix = name.removeprefix(matrix_table.layer_prefix(index))
  norm = np.asarray(exponents.norm)
  if suffix in _NORM:
    return _times(value, -norm)
  if suffix == _UP:
    return _times(value, norm[:, None])
  if suffix not in (_QKV, _POST):
    return value
  heads = value.shape[-2:]
  mixed = np.asarray(exponents.mixed).reshape(heads)
  if suffix == _POST:
    return _times(value, mixed)
  value = _times(value, norm[:, None, None])
  value[2] = _times(value[2], -mixed)
  return value


def apply_to_stats(
  stats: Mapping[str, input_stats.InputStats],
  exponents: Exponents,
) -> dict[str, input_stats.InputStats]:
  """What the statistics are once the sizes were moved."""
  result = dict(stats)
  for name, values in dataclasses.asdict(exponents).items():
    size = np.exp2(-np.asarray(values, np.float32))
    old = stats[name]
    hessian = old.hessian
    if hessian is not None:
      hessian = hessian * size * size[:, None]
    result[name] = input_stats.InputStats(
      old.peak * size, old.mean_square * size * size, hessian
    )
  result['fed'] = result['norm']  # Both read one layer norm.
  return result


def _times(value: np.ndarray, exponents: np.ndarray) -> np.ndarray:
  """value * 2**exponents in its own type, in a new array."""
  return value * np.exp2(exponents.astype(np.float32)).astype(value.dtype)
