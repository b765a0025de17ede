"""Rotary position embedding, half-split form.

GPT-J rotates neighbouring pairs (0, 1), (2, 3), ... of the first rotary_dim
dims. `weights.py` reorders those dims so that a pair's members lie rotary_dim/2
apart, which turns the rotation into two contiguous halves. Other families have
them in this order from the start.
"""

import jax
import jax.numpy as jnp
import numpy as np


def table(
  num_positions: int, rotary_dim: int, base: float
) -> tuple[np.ndarray, np.ndarray]:
  """Returns sin, cos [num_positions, rotary_dim / 2] float32.

  Args:
    num_positions: The number of rows; angles are computed in float32.
    rotary_dim: The number of rotated dims.
    base: Wavelengths grow geometrically from 2 pi to about 2 pi * base.
  """
  exponent = np.arange(0, rotary_dim, 2, dtype=np.float32) / rotary_dim
  frequency = (1.0 / np.float32(base) ** exponent).astype(np.float32)
  angle = np.arange(num_positions, dtype=np.float32)[:, None] * frequency
  return np.sin(angle), np.cos(angle)


def rotate(x: jax.Array, sin: jax.Array, cos: jax.Array) -> jax.Array:
  """Rotates the first dims of x [..., H] by sin, cos [..., rotary_dim / 2]."""
  half = sin.shape[-1]
  a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
  return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)
