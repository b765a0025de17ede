"""int8 arrays with scales: how weights and activations are quantized.

Symmetric: a value is its int8 times its scale, and 0 stays 0. Codes run from
-127 to 127, so that a value and its negative have the same size.
"""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

QUANTIZATIONS = (None, "int8")

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
  """

  values: jax.Array
  scale: jax.Array


def quantize(weight: np.ndarray, contracted: Sequence[int]) -> QuantizedArray:
  """Quantizes a weight to int8 on the host.

  Args:
    weight: any shape.
    contracted: its dims that products sum over; each index of the others is an
      output channel.

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
  )


def quantize_rows(x: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Quantizes each row by its own largest value.

  Args:
    x: [M, K] float32.

  Returns:
    values [M, K] int8 and scale [M] float32; x is about values * scale.
  """
  peak = jnp.abs(x).max(-1)
  values = jnp.round(x * _inverse_scale(peak, jnp)[:, None])
  return values.astype(jnp.int8), peak * (1 / _LARGEST)


def _inverse_scale(peak, xp):
  """What to multiply values with, given the largest of them."""
  large = peak > _NEGLIGIBLE
  return xp.where(large, _LARGEST / xp.where(large, peak, 1), 0)
