"""Quantizes weights and activations to int8 or fp8 arrays with scales.

Quantization is symmetric: a value is its code times its scale, and 0 stays 0.
Codes range from -127 to 127 in int8, and from -448 to 448 in fp8 (float8 with 4
bits of exponent), so a value and its negative have codes of the same magnitude.
"""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

# The quantizations of weights. None leaves them in float. "int8" multiplies
# int8 weights with activations quantized to int8. "int8_weights" multiplies
# int8 weights with activations in float. "int8_fine" multiplies int8 weights
# with activations of 15 bits on CPUs that have a kernel for it, and with floats
# elsewhere. "int4" has the weights of layers in 4 bits, as `int4.py` describes,
# and those of the head as "int8_fine" does. "fp8" multiplies fp8 weights with
# activations quantized to fp8.
QUANTIZATIONS = (None, 'int8', 'int8_weights', 'int8_fine', 'int4', 'fp8')
# Those that do not multiply int8 weights.
NOT_INT8 = (None, 'int4', 'fp8')
# The values of QuantizedArray.activations for "int8_fine", "int4" and "fp8".
FINE, INT4, FP8 = 'fine', 'int4', 'fp8'
# The types of codes, by those values, if activations have the same type.
CODES = {None: np.dtype(np.int8), FP8: np.dtype(jnp.float8_e4m3fn)}

# Rows whose largest value is below this become zeros. Otherwise the division
# could use a divisor that the processor has flushed to zero.
_NEGLIGIBLE = np.float32(1e-30)
# Output channels are quantized in blocks of about this many values. So the
# temporary float32 copies are small compared with the weight.
_BLOCK = 1 << 22


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QuantizedArray:
  """A weight in int8, fp8 or int4, with one scale per output channel.

  It is stored as a matrix of outputs and contracted values, independent of the
  order in an einsum's spec. The rows of an [N, K] matrix are read in memory
  order. On CPU this is 2 to 6 times as fast as [K, N] at K = N = 4096. A TPU
  reads the matrix in place. With more dimensions XLA would copy it in each
  layer.

  Attributes:
    values: The codes, [N, K] int8 or fp8. N is the product of the sizes of all output
      dimensions, and K that of all contracted dimensions. For INT4, the bytes
      that `int4.py` describes, [tiles of N, bytes of K] uint8.
    scale: The scales, [*outputs] float32.
    activations: None to quantize the activations to int8, FINE to quantize them
      to 15 bits, INT4 for weights in int4, FP8 for weights and activations in
      fp8, or the dtype to which activations are rounded. It is static, because it selects the computation.
  """

  values: jax.Array
  scale: jax.Array
  activations: str | None = dataclasses.field(
    default=None, metadata=dict(static=True)
  )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QuantizedRows:
  """Keys or values in int8, with one scale per row of one dimension.

  Attributes:
    values: The codes, int8.
    scale: The scales, float32. They have the same rank as the values, with size
      1 at `axis`. In compact form that dimension is absent.
    axis: The dimension whose elements share a scale, counted from the end. It
      is static, because the shapes alone do not determine it.
  """

  values: jax.Array
  scale: jax.Array
  axis: int = dataclasses.field(metadata=dict(static=True))

  @property
  def shape(self) -> tuple[int, ...]:
    return self.values.shape

  def compact(self) -> 'QuantizedRows':
    """Returns these rows without the dimension of size 1 in the scale.

    The cache stores this form. A TPU would pad a last dimension of size 1 to
    128 in memory. Without it, kernels find a row of scales in one row of a
    register.
    """
    return dataclasses.replace(self, scale=self.scale.squeeze(self.axis))


def activation_format(
  quantization: str | None, dtype: str, is_head: bool = False
) -> str | None:
  """Returns the value of QuantizedArray.activations.

  Args:
    quantization: One of QUANTIZATIONS.
    dtype: The dtype of activations in float.
    is_head: True for the weight of the head.
  """
  int4 = FINE if is_head else INT4
  formats = {'int8': None, 'int8_fine': FINE, 'int4': int4, 'fp8': FP8}
  return formats.get(quantization or '', dtype)


def quantize(
  weight: np.ndarray, contracted: Sequence[int], activations: str | None = None
) -> QuantizedArray:
  """Quantizes a weight to int8 or fp8 on the host.

  Args:
    weight: The weight, of any shape.
    contracted: The dimensions that products sum over. Each index of the other
      dimensions is an output channel.
    activations: The dtype of activations, as in `QuantizedArray`.

  Raises:
    ValueError: The weight has values that are not finite.
  """
  weight = outputs_first(np.asarray(weight), contracted)
  axes = tuple(range(weight.ndim - len(contracted), weight.ndim))
  values = np.empty(weight.shape, CODES.get(activations, np.int8))
  scale = np.empty(weight.shape[: axes[0]], np.float32)
  rows = max(1, _BLOCK * len(weight) // weight.size)
  for begin in range(0, len(weight), rows):
    block = slice(begin, begin + rows)
    part = weight[block].astype(np.float32)
    peak = np.abs(part).max(axes, keepdims=True)
    if not np.isfinite(peak).all():
      raise ValueError(
        f'a weight of shape {weight.shape} has values that are not finite, so'
        ' it cannot be quantized. Check the checkpoint.'
      )
    codes = part * _inverse_scale(peak, np, values.dtype)
    values[block] = np.rint(codes) if values.dtype == np.int8 else codes
    scale[block] = (peak * (1 / _largest(values.dtype))).squeeze(axes)
  return _matrix(values, scale, activations)


def from_codes(
  values: np.ndarray,
  scale: np.ndarray,
  contracted: Sequence[int],
  activations: str | None = None,
) -> QuantizedArray:
  """Returns a weight from codes and scales of an earlier quantization.

  Args:
    values: The codes, int8, of any shape.
    scale: The scales, float32, of the same rank, with size 1 at the contracted
      dimensions.
    contracted: The dimensions that products sum over, as in `quantize`.
    activations: The dtype of activations, as in `QuantizedArray`.

  Raises:
    ValueError: The scale has values that are not finite.
  """
  if not np.isfinite(scale).all():
    raise ValueError(
      f'a scale of shape {scale.shape} has values that are not finite. Check'
      ' the checkpoint.'
    )
  values = outputs_first(values, contracted)
  scale = outputs_first(np.asarray(scale, np.float32), contracted)
  scale = scale.reshape(scale.shape[: scale.ndim - len(contracted)])
  return _matrix(values, scale, activations)


def _matrix(
  values: np.ndarray, scale: np.ndarray, activations: str | None
) -> QuantizedArray:
  """Returns a weight from values whose first dimensions are the outputs.

  The outputs are the dimensions of the scale.
  """
  values = values.reshape(scale.size, -1)
  return QuantizedArray(jnp.asarray(values), jnp.asarray(scale), activations)


def outputs_first(x: np.ndarray, contracted: Sequence[int]) -> np.ndarray:
  """Moves the contracted dimensions to the end, in their order."""
  axes = sorted(axis % x.ndim for axis in contracted)
  return x.transpose(*[i for i in range(x.ndim) if i not in axes], *axes)


def quantize_along(
  x: jax.Array, axis: int, dtype: np.dtype = CODES[None]
) -> QuantizedRows:
  """Quantizes float32 x so that the elements along `axis` < 0 share a scale."""
  peak = jnp.abs(x).max(axis, keepdims=True)
  codes = x * _inverse_scale(peak, jnp, dtype)
  values = (jnp.round(codes) if dtype == np.int8 else codes).astype(dtype)
  return QuantizedRows(values, peak * (1 / _largest(dtype)), axis)


def _largest(dtype: np.dtype) -> np.float32:
  info = jnp.iinfo if dtype == np.int8 else jnp.finfo
  return np.float32(info(dtype).max)


def _inverse_scale(peak, xp, dtype):
  """Returns the factor that turns values into codes.

  Args:
    peak: The largest magnitude of the values.
    xp: The module that computes it, numpy or jax.numpy.
    dtype: The type of the codes.
  """
  large = peak > _NEGLIGIBLE
  return xp.where(large, _largest(dtype) / xp.where(large, peak, 1), 0)
