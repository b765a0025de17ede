"""Exact top-k over long rows, in two stages."""

import jax
import jax.numpy as jnp

# On CPU, [128, 4096] top 8: 0.4 ms with blocks of 16 to 64, 0.7 ms in one go.
_BLOCK = 64


def top_k(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """The k largest of each row of x [R, V], ties to the lower index.

  The largest of each block of a row are found first; the k best blocks hold
  the k best elements. What is left over behind the last whole block competes
  beside them.

  Returns:
    values and indices, [R, k], in descending order of value.
  """
  rows, width = x.shape
  if width <= 4 * k * _BLOCK:
    return jax.lax.top_k(x, k)
  whole = width - width % _BLOCK
  blocks = x[:, :whole].reshape(rows, -1, _BLOCK)
  best = jax.lax.top_k(blocks.max(-1), k)[1]
  best = jnp.sort(best, -1)  # Candidates in index order keep ties in order.
  candidates = jnp.take_along_axis(blocks, best[:, :, None], 1)
  candidates = candidates.reshape(rows, k * _BLOCK)
  candidates = jnp.concatenate([candidates, x[:, whole:]], -1)
  values, where = jax.lax.top_k(candidates, k)
  block = jnp.take_along_axis(best, jnp.minimum(where // _BLOCK, k - 1), 1)
  index = block * _BLOCK + where % _BLOCK
  rest = where - k * _BLOCK
  return values, jnp.where(rest >= 0, whole + rest, index)
