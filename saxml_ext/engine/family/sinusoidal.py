"""Sinusoidal position embedding, added to the embeddings of tokens.

Half of the dims are sines of the position and half are cosines, at wavelengths
that grow geometrically: `PositionalEmbedding` of praxis.
"""

import math

import jax
import jax.numpy as jnp

# The longest wavelength is 2 pi times this.
_LONGEST = 10000.0


def embedding(positions: jax.Array, width: int) -> jax.Array:
  """What is added at positions [...], of int32: [..., width] float32."""
  count = width // 2
  step = math.log(_LONGEST) / max(count - 1, 1)
  frequency = jnp.exp(jnp.arange(count, dtype=jnp.float32) * -step)
  angle = positions[..., None] * frequency
  signal = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)
  odd = [(0, 0)] * (signal.ndim - 1) + [(0, width % 2)]
  return jnp.pad(signal, odd)
