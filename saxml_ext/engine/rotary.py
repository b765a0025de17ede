"""Computes the angles of rotary positions.

GPT-J and PAX checkpoints of Llama rotate neighboring pairs (0, 1), (2, 3), ...
of the first dimensions of a head. `weights.py` reorders those dimensions so
that the members of a pair are half of the rotated dimensions apart. The
rotation then works on two contiguous halves. Other families have this order in
the checkpoint.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture as architecture_lib

_Scaling = architecture_lib.RotaryScaling | None


def table(
  num_positions: int, rotary_dim: int, base: float, scaling: _Scaling = None
) -> tuple[np.ndarray, np.ndarray]:
  """Returns sin, cos [num_positions, rotary_dim / 2] float32.

  Args:
    num_positions: The number of rows; angles are computed in float32.
    rotary_dim: The number of rotated dimensions.
    base: The base of the wavelengths, which grow geometrically from 2 pi to
      about 2 pi * base.
    scaling: The scaling of the frequencies; None for no scaling.
  """
  frequency = frequencies(rotary_dim, base, scaling)
  angle = np.arange(num_positions, dtype=np.float32)[:, None] * frequency
  sin, cos = np.sin(angle), np.cos(angle)
  gain = _gain(scaling)
  return (sin, cos) if gain == 1 else (sin * gain, cos * gain)


def frequencies(rotary_dim: int, base: float, scaling: _Scaling) -> np.ndarray:
  """Returns the angle of each pair per position, [rotary_dim / 2] float32."""
  exponent = np.arange(0, rotary_dim, 2, dtype=np.float32) / rotary_dim
  frequency = (1.0 / np.float32(base) ** exponent).astype(np.float32)
  return frequency if scaling is None else _scaled(frequency, scaling)


def rows(
  positions: jax.Array, rotary_dim: int, base: float, scaling: _Scaling = None
) -> tuple[jax.Array, jax.Array]:
  """Returns the rows of `table` for positions [...], without the table.

  A program with the table of a long context would be many megabytes larger.
  """
  angle = positions[..., None] * frequencies(rotary_dim, base, scaling)
  sin, cos = jnp.sin(angle), jnp.cos(angle)
  gain = _gain(scaling)
  return (sin, cos) if gain == 1 else (sin * gain, cos * gain)


def _gain(scaling: _Scaling) -> np.float32:
  return np.float32(1 if scaling is None else scaling.gain)


def _scaled(
  frequency: np.ndarray, scaling: architecture_lib.RotaryScaling
) -> np.ndarray:
  """Returns the scaled frequencies, float32."""
  if scaling.divisors:
    return frequency / np.array(scaling.divisors, np.float32)
  low, high = scaling.low_freq_factor, scaling.high_freq_factor
  wavelength = (2 * math.pi / frequency).astype(np.float32)
  smooth = (scaling.original_length / wavelength - low) / (high - low)
  smooth = np.clip(smooth, 0, 1).astype(np.float32)
  slow = frequency / np.float32(scaling.factor)
  return ((1 - smooth) * slow + smooth * frequency).astype(np.float32)
