"""int8 arrays with scales: how weights and activations are quantized.

Symmetric: a value is its int8 times its scale, and 0 stays 0. Codes run from
-127 to 127, so that a value and its negative have the same size.
"""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

# What weights may be: None is not quantized; "int8" multiplies int8 weights
# with activations made int8 too; "int8_weights" with activations as they are.
QUANTIZATIONS = (None, 'int8', 'int8_weights')

_LARGEST = np.float32(127)
# Rows whose largest value is below this become zeros, instead of dividing by
# a number that the processor may have flushed to zero.
_NEGLIGIBLE = np.float32(1e-30)
# Output channels are quantized in blocks of about this many values, so that
# the float32 copies that it takes are small beside the weight.
_BLOCK = 1 << 22


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QuantizedArray:
  """A weight in int8, one scale per output channel.

  A matrix of outputs and contracted values, whatever their dims and their
  places in an einsum's spec: rows of an [N, K] matrix are read in order of
  memory, which at K = N = 4096 is 2 to 6 times as fast on CPU as [K, N]. A TPU
  reads it where it lies; of more dims XLA would make a copy in each layer.

  values [N, K] int8, of the products of the sizes of all outputs and of all
  contracted dims; scale [*outputs] float32.
  activations: None makes int8 of the activations that it is multiplied with;
  else a dtype that they are rounded to. Static: it decides how is computed.
  """

  values: jax.Array
  scale: jax.Array
  activations: str | None = dataclasses.field(
    default=None, metadata=dict(static=True)
  )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QuantizedRows:
  """Keys or values in int8, one scale for each row of one of their dims.

  values: int8; scale: float32, of the same rank, with size 1 at `axis`, or, if
  compact, without that dim.
  axis: the dim whose elements share a scale, from the end. Static, for shapes
  alone cannot tell.
  """

  values: jax.Array
  scale: jax.Array
  axis: int = dataclasses.field(metadata=dict(static=True))

  @property
  def shape(self) -> tuple[int, ...]:
    return self.values.shape

  def compact(self) -> 'QuantizedRows':
    """The same without the scale's dim of size 1.

    To keep: in a TPU's memory that dim would be padded to 128 where it is last,
    and kernels would find a row of scales in one row of a register.
    """
    return dataclasses.replace(self, scale=self.scale.squeeze(self.axis))


def quantize(
  weight: np.ndarray,
  contracted: Sequence[int],
  activations: str | None = None,
) -> QuantizedArray:
  """Quantizes a weight to int8 on the host.

  Args:
    weight: any shape.
    contracted: its dims that products sum over; each index of the others is an
      output channel.
    activations: see `QuantizedArray`.

  Raises:
    ValueError: the weight has values that are not finite.
  """
  weight = _outputs_first(np.asarray(weight), contracted)
  axes = tuple(range(weight.ndim - len(contracted), weight.ndim))
  values = np.empty(weight.shape, np.int8)
  scale = np.empty(weight.shape[: axes[0]], np.float32)
  rows = max(1, _BLOCK * len(weight) // weight.size)
  for begin in range(0, len(weight), rows):
    block = slice(begin, begin + rows)
    part = weight[block].astype(np.float32)
    peak = np.abs(part).max(axes, keepdims=True)
    if not np.isfinite(peak).all():
      raise ValueError(
        f'a weight of shape {weight.shape} has values that are not finite;'
        ' there is no int8 for them. Check the checkpoint.'
      )
    values[block] = np.rint(part * _inverse_scale(peak, np))
    scale[block] = (peak * (1 / _LARGEST)).squeeze(axes)
  return _matrix(values, scale, activations)


def from_codes(
  values: np.ndarray,
  scale: np.ndarray,
  contracted: Sequence[int],
  activations: str | None = None,
) -> QuantizedArray:
  """A weight that was quantized before.

  Args:
    values: int8, any shape.
    scale: float32, of the same rank, with size 1 at the contracted dims.
    contracted: as of `quantize`.
    activations: see `QuantizedArray`.

  Raises:
    ValueError: the scale has values that are not finite.
  """
  if not np.isfinite(scale).all():
    raise ValueError(
      f'a scale of shape {scale.shape} has values that are not finite. Check'
      ' the checkpoint.'
    )
  values = _outputs_first(values, contracted)
  scale = _outputs_first(np.asarray(scale, np.float32), contracted)
  scale = scale.reshape(scale.shape[: scale.ndim - len(contracted)])
  return _matrix(values, scale, activations)


def _matrix(
  values: np.ndarray, scale: np.ndarray, activations: str | None
) -> QuantizedArray:
  """A weight whose outputs, the dims of its scale, come first."""
  values = values.reshape(scale.size, -1)
  return QuantizedArray(jnp.asarray(values), jnp.asarray(scale), activations)


def _outputs_first(x: np.ndarray, contracted: Sequence[int]) -> np.ndarray:
  """Puts the contracted dims last, in their order."""
  axes = sorted(axis % x.ndim for axis in contracted)
  return x.transpose(*[i for i in range(x.ndim) if i not in axes], *axes)


def quantize_along(x: jax.Array, axis: int) -> QuantizedRows:
  """Quantizes x float32 so that the elements along `axis` < 0 share a scale."""
  peak = jnp.abs(x).max(axis, keepdims=True)
  values = jnp.round(x * _inverse_scale(peak, jnp)).astype(jnp.int8)
  return QuantizedRows(values, peak * (1 / _LARGEST), axis)


def _inverse_scale(peak, xp):
  """Returns the factor of values, given the largest of them."""
  large = peak > _NEGLIGIBLE
  return xp.where(large, _LARGEST / xp.where(large, peak, 1), 0)
