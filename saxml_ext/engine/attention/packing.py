"""Lays several prompts one after the other in one row, without padding.

So one call prefills several prompts. The padding after the last prompt is
treated as one more prompt, in a slot that does not exist. Nothing is written
for it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine.attention import cache


class Row(NamedTuple):
  """The prompts of a row of T tokens.

  Attributes:
    positions: The position of each token in its own prompt, [T] int32.
    slots: The slot of each token, [T] int32. S for padding.
    last: The index of the last token of each prompt, [P] int32.
  """

  positions: jax.Array
  slots: jax.Array
  last: jax.Array

  @classmethod
  def from_lengths(
    cls, size: int, lengths: jax.Array, slots: jax.Array, num_slots: int
  ) -> 'Row':
    """Returns the row of some prompts.

    Args:
      size: The number of tokens in the row, T.
      lengths: The lengths of the prompts, [P] int32. The last may be 0.
      slots: The slots of the prompts, [P] int32.
      num_slots: The number of slots, S.
    """
    ends = jnp.cumsum(lengths)
    index = jnp.arange(size)
    prompt = (index[:, None] >= ends).sum(1)  # P for padding.
    return cls(
      index - jnp.pad(ends, (1, 0))[prompt],
      jnp.append(slots, num_slots)[prompt],
      jnp.maximum(ends - 1, 0),
    )

  def insert(
    self,
    block: cache.Block,
    layer: layers_lib.Index,
    keys: cache.KV,
    values: cache.KV,
  ) -> cache.Block:
    """Writes one layer's keys [1, N, H, T] and values [1, N, T, H]."""
    before = (layer,) if layers_lib.is_stacked(block.keys) else ()

    def put(
      arrays: cache.PerLayer, new: cache.KV, columns: bool
    ) -> cache.PerLayer:
      def write(old: jax.Array, new: jax.Array) -> jax.Array:
        axis = new.ndim - 1 if columns else 2
        inner = [slice(None)] * (axis - 1)
        at = (*before, self.slots, *inner, self.positions)
        new = jnp.moveaxis(new[0], axis - 1, 0)
        return old.at[at].set(new, mode='drop', unique_indices=True)

      if not isinstance(arrays, tuple):
        return jax.tree.map(write, arrays, new)
      changed = jax.tree.map(write, arrays[layer], new)
      return (*arrays[:layer], changed, *arrays[layer + 1 :])

    return cache.Block(
      put(block.keys, keys, True), put(block.values, values, False)
    )
