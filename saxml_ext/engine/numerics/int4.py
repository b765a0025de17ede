"""Quantizes weights to 4 bits in groups.

A group is 32 numbers that a product sums over. Each has a step and a minimum in
float16, and a number is minimum + code * step with codes from 0 to 15. Weights
of 4-bit checkpoints already have this form, so they do not change.
"""

from collections.abc import Sequence
import math

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.numerics import quant

GROUP = 32
# The outputs of a tile, and the bytes of a group of a tile: 16 steps, 16 minima
# and 512 codes. Each byte of codes has a number of the first half of eight
# neighbors in its low bits, and one of the second half in its high bits. The
# bytes are [4 of eight numbers, 16 outputs, 4 of a half].
_OUTPUTS = 16
_PARAMETERS = 4 * _OUTPUTS
_BYTES = _PARAMETERS + _OUTPUTS * GROUP // 2
_LARGEST = 15
# Distances between numbers below this share of the largest one are rounding.
_ROUNDING = np.float32(1e-5)
# Codes this close to integers belong to numbers of equal distances.
_EVEN = 0.01
# Steps and minima of an output are below two to this power in float16.
_EXPONENT = 14
# Float32 has smaller numbers, but processors may take them for 0.
_LEAST_EXPONENT = -100
# The number of weights that are quantized at once.
_BLOCK = 1 << 20


def packed_shape(outputs: int, size: int) -> tuple[int, int]:
  """Returns the shape of the values of a matrix [outputs, size].

  Raises:
    ValueError: Rows are not whole groups.
  """
  if size % GROUP:
    raise ValueError(
      f'a matrix sums over {size} numbers, which int4 does not support, because'
      f" they are no multiple of {GROUP}. Set quantization to 'int8'."
    )
  return -(-outputs // _OUTPUTS), size // GROUP * _BYTES


def quantize(
  weight: np.ndarray, contracted: Sequence[int]
) -> quant.QuantizedArray:
  """Quantizes a weight; the arguments are those of `quant.quantize`.

  The scales are powers of two, by which steps and minima are multiplied.

  Raises:
    ValueError: Rows are not whole groups, or a value is not finite.
  """
  weight = quant.outputs_first(np.asarray(weight), contracted)
  outputs = weight.shape[: weight.ndim - len(contracted)]
  weight = weight.reshape(math.prod(outputs), -1)
  values = np.zeros(packed_shape(*weight.shape), np.uint8)
  scale = np.empty(len(weight), np.float32)
  tiles = max(1, _BLOCK // (weight.shape[1] * _OUTPUTS))
  for tile in range(0, len(values), tiles):
    rows = slice(tile * _OUTPUTS, (tile + tiles) * _OUTPUTS)
    block = weight[rows].astype(np.float32)
    block = block.reshape(len(block), -1, GROUP)
    if not np.isfinite(block).all():
      raise ValueError(
        f'a weight of shape {weight.shape} has values that are not finite, so'
        ' it cannot be quantized. Check the checkpoint.'
      )
    values[tile : tile + tiles], scale[rows] = _quantized(block)
  scale = scale.reshape(outputs)
  return quant.QuantizedArray(
    jnp.asarray(values), jnp.asarray(scale), quant.INT4
  )


def _quantized(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the values and the scales of rows of groups [N, G, GROUP]."""
  least, step = _lines(groups)
  peak = np.abs(groups).max((1, 2))
  exponent = np.maximum(np.frexp(peak)[1] - _EXPONENT, _LEAST_EXPONENT)
  scale = np.ldexp(np.float32(1), exponent)
  # [N, 2, G, 1].
  parameters = np.stack([step, least], 1) / scale[:, None, None, None]
  parameters = parameters.astype(np.float16)
  rounded = parameters.astype(np.float32) * scale[:, None, None, None]
  step, least = rounded[:, 0], rounded[:, 1]
  codes = np.rint((groups - least) / np.where(step > 0, step, np.inf))
  codes = np.clip(codes, 0, _LARGEST).astype(np.uint8)
  return _packed(parameters, codes), scale


def _lines(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the minimum and the step of each group, [N, G, 1]."""
  ordered = np.sort(groups, -1)
  least, largest = ordered[..., :1], ordered[..., -1:]
  gaps = np.diff(ordered)
  gaps[gaps <= _ROUNDING * np.maximum(np.abs(least), np.abs(largest))] = np.inf
  # The numbers of a 4-bit checkpoint have equal distances, often fewer than 15
  # between the least and the largest one.
  fewer = np.rint((largest - least) / gaps.min(-1, keepdims=True))
  step = (largest - least) / np.clip(fewer, 1, _LARGEST)
  codes = (ordered - least) / np.where(step > 0, step, 1)
  is_even = np.abs(codes - np.rint(codes)).max(-1, keepdims=True) < _EVEN
  return least, np.where(is_even, step, (largest - least) / _LARGEST)


def _packed(parameters: np.ndarray, codes: np.ndarray) -> np.ndarray:
  """Packs steps and minima [N, 2, G, 1] and codes [N, G, 32] into values."""
  rows, groups = codes.shape[:2]
  missing = -rows % _OUTPUTS
  parameters = np.pad(parameters[..., 0], ((0, missing), (0, 0), (0, 0)))
  codes = np.pad(codes, ((0, missing), (0, 0), (0, 0)))
  parameters = parameters.reshape(-1, _OUTPUTS, 2, groups)
  parameters = np.ascontiguousarray(parameters.transpose(0, 3, 2, 1))
  codes = codes.reshape(-1, _OUTPUTS, groups, 4, 2, 4)
  low, high = codes.transpose(4, 0, 2, 3, 1, 5)
  shape = len(parameters), groups, -1
  parts = parameters.view(np.uint8), low | high << 4
  packed = np.concatenate([part.reshape(shape) for part in parts], -1)
  return packed.reshape(len(parameters), -1)


def dequantized(values: jax.Array, outputs: int) -> jax.Array:
  """Returns weights [outputs, K] float32 without their scales."""
  tiles = values.reshape(len(values), -1, _BYTES)
  parameters = jax.lax.bitcast_convert_type(
    tiles[..., :_PARAMETERS].reshape(*tiles.shape[:2], 2, 1, _OUTPUTS, 1, 2),
    jnp.float16,
  ).astype(jnp.float32)
  both = tiles[..., _PARAMETERS:].reshape(*tiles.shape[:2], 4, _OUTPUTS, 1, 4)
  codes = jnp.concatenate([both & _LARGEST, both >> 4], -2)
  # [T, G, 4, 16, 2, 4].
  weights = codes * parameters[:, :, 0, ..., np.newaxis]
  weights += parameters[:, :, 1, ..., np.newaxis]
  return weights.transpose(0, 3, 1, 2, 4, 5).reshape(
    len(values) * _OUTPUTS, -1
  )[:outputs]
