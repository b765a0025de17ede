"""Tracks which steps in the suffix blocks belong to each beam.

The ancestry tables are described in `cache.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.attention import cache

NOTHING = -1


def ancestry_dtype(beams: int) -> type[np.signedinteger]:
  """Returns the smallest type of ancestry tables for that number of beams."""
  return np.int8 if beams - 1 <= np.iinfo(np.int8).max else np.int16


def claim_row(
  ancestry: jax.Array, row: jax.Array, wraps: bool = False
) -> jax.Array:
  """Returns the ancestry in which each beam owns its new key in `row`.

  Row 0 starts a new turn of the block and clears the entries of the last turn.
  A block that wraps is the whole ring, and then only the entries of `row` are
  cleared.
  """
  slots, beams, width = ancestry.shape
  if not wraps:
    ancestry = jnp.where(row == 0, NOTHING, ancestry)
  own = jnp.arange(beams, dtype=ancestry.dtype)[None, :, None]
  own = jnp.broadcast_to(own, (slots, beams, 1))
  return jax.lax.dynamic_update_slice(ancestry, own, (0, 0, row))


def inherit(ancestry: jax.Array, parents: jax.Array) -> jax.Array:
  """Returns ancestry [S, K, W] in which beam k continues beam parents[s, k]."""
  return jnp.take_along_axis(ancestry, parents[:, :, None], 1)


def visible(ancestry: jax.Array, rows_per_step: int = 0) -> jax.Array:
  """Returns the mask [S, K, W * R] of the keys in each beam's own past.

  Args:
    ancestry: The ancestry, [S, K, W].
    rows_per_step: The number of rows of each step, R; 0 stands for K.
  """
  slots, beams, width = ancestry.shape
  count = rows_per_step or beams
  rows = jnp.arange(count, dtype=ancestry.dtype)
  return (ancestry[..., None] == rows).reshape(slots, beams, width * count)


def move_steps(
  segment: cache.Block,
  ring: cache.Block,
  slot: jax.Array,
  first: jax.Array,
  steps: int,
  end: jax.Array,
) -> cache.Block:
  """Returns a prompt's segment with the steps of the slot's first row added.

  Args:
    segment: The stacked segment of the prompts. It has room for W more columns
      after the slot's last.
    ring: The stacked block of the steps, of which the last is the newest.
    slot: The slot, [] int32.
    first: The slot's first step in the ring, [] int32.
    steps: The number of steps in the ring, W.
    end: The number of columns that the slot's prompt has, [] int32.
  """

  def rows(x: jax.Array) -> jax.Array:
    """Returns the steps of the first row, the oldest first: [L, 1, N, W, ...]."""
    x = jax.lax.dynamic_slice_in_dim(x, slot, 1, 1)
    x = x.reshape(*x.shape[:3], steps, -1, *x.shape[4:])[:, :, :, :, 0]
    return jnp.roll(x, -first, 3)

  def write(old: jax.Array, new: jax.Array, axis: int) -> jax.Array:
    at = [0, slot, 0, 0, 0][: new.ndim]
    at[axis] = end
    return jax.lax.dynamic_update_slice(old, new, at)

  def write_keys(old: jax.Array, new: jax.Array) -> jax.Array:
    new = rows(new)
    new = new.swapaxes(3, 4) if new.ndim == 5 else new  # Scales have no H.
    return write(old, new, new.ndim - 1)

  # Keys have their scales along H in both blocks.
  old, new = jax.tree.leaves(segment.keys), jax.tree.leaves(ring.keys)
  keys = jax.tree.structure(segment.keys).unflatten(map(write_keys, old, new))
  return cache.Block(
    keys,
    jax.tree.map(
      lambda old, new: write(old, rows(new), 3), segment.values, ring.values
    ),
  )
