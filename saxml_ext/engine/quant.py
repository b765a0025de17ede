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
QUANTIZATIONS = (None, "int8", "int8_weights")

_LARGEST = np.float32(127)
# Rows whose largest value is below this become zeros, instead of dividing by
# a number that the processor may have flushed to zero.
_NEGLIGIBLE = np.float32(1e-30)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QuantizedArray:
  """A weight in int8, one scale per output channel.

  The contracted dims are last, whatever their place in an einsum's spec: rows
  of a [n, k] matrix are read in order of memory, which at k = n = 4096 is 2 to
  6 times as fast on CPU as [k, n].

  values [*outputs, *contracted] int8; scale [*outputs] float32.
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

  values: int8; scale: float32, of the same rank, with size 1 at `axis`.
  axis: the dim whose elements share a scale, from the end. Static, for shapes
  alone cannot tell.
  """

  values: jax.Array
  scale: jax.Array
  axis: int = dataclasses.field(metadata=dict(static=True))

  @property
  def shape(self) -> tuple[int, ...]:
    return self.values.shape


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
  axes = sorted(axis % weight.ndim for axis in contracted)
  outputs = [axis for axis in range(weight.ndim) if axis not in axes]
  weight = np.asarray(weight, np.float32).transpose(*outputs, *axes)
  rows = weight.reshape(*weight.shape[: len(outputs)], -1)
  peak = np.abs(rows).max(-1)
  if not np.isfinite(peak).all():
    raise ValueError(
        f"a weight of shape {weight.shape} has values that are not finite;"
        " there is no int8 for them. Check the checkpoint."
    )
  values = np.rint(rows * _inverse_scale(peak, np)[..., None])
  return QuantizedArray(
      jnp.asarray(values.astype(np.int8).reshape(weight.shape)),
      jnp.asarray(peak * (1 / _LARGEST)),
      activations,
  )


def quantize_along(x: jax.Array, axis: int) -> QuantizedRows:
  """Quantizes x float32 so that the elements along `axis` < 0 share a scale."""
  peak = jnp.abs(x).max(axis, keepdims=True)
  values = jnp.round(x * _inverse_scale(peak, jnp)).astype(jnp.int8)
  return QuantizedRows(values, peak * (1 / _LARGEST), axis)


def _inverse_scale(peak, xp):
  """What to multiply values with, given the largest of them."""
  large = peak > _NEGLIGIBLE
  return xp.where(large, _LARGEST / xp.where(large, peak, 1), 0)
