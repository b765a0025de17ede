"""KV cache of beam groups.

A slot holds one request. Its prompt's keys and values are stored once, cut at
fixed boundaries into segments. Its K beams' suffixes lie in a ring of blocks,
each of W decode steps: at step g of the engine (counted over all requests)
every slot writes the K keys of its beams to the same place, row g of the ring,
so that a step's write is one slice however the requests' ages differ.

Beams never move in memory. Which row of K holds beam k's key for a step is
told by the ancestry table, [S, K, W] of each block: 0 to K - 1, or -1 where
the slot's request has written nothing. Reordering beams reorders that table.
"""

import dataclasses

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib

NOTHING = -1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Block:
  """Keys [S, N, H, T] and values [S, N, T, H], one of each per layer.

  In a suffix block T runs over W steps, each with K beams: step-major.
  """

  keys: tuple[jax.Array, ...]
  values: tuple[jax.Array, ...]

  @property
  def length(self) -> int:
    return self.keys[0].shape[-1]


def empty_block(
    model: config_lib.GPTJConfig, slots: int, length: int, dtype: str
) -> Block:
  """A block of zeros: finite, so that masked values add exactly nothing."""
  n, h = model.num_heads, model.head_dim
  layers = range(model.num_layers)
  return Block(
      tuple(jnp.zeros((slots, n, h, length), dtype) for _ in layers),
      tuple(jnp.zeros((slots, n, length, h), dtype) for _ in layers),
  )


def insert_prompts(
    segments: tuple[Block, ...],
    layer: int,
    slots: jax.Array,
    keys: jax.Array,
    values: jax.Array,
) -> tuple[Block, ...]:
  """Writes one layer's prompt KV to its slots, cut at the segments' bounds.

  Args:
    segments: those that the prompts reach.
    layer: index of the layer.
    slots: [B] int32. Two rows may name one slot if they are equal.
    keys: [B, N, H, T].
    values: [B, N, T, H].
  """
  length = keys.shape[-1]
  start = 0
  result = []
  for block in segments:
    end = min(start + block.length, length)
    block_keys, block_values = list(block.keys), list(block.values)
    for row in range(keys.shape[0]):
      at = (slots[row], 0, 0, 0)
      block_keys[layer] = jax.lax.dynamic_update_slice(
          block_keys[layer], keys[row : row + 1, ..., start:end], at
      )
      block_values[layer] = jax.lax.dynamic_update_slice(
          block_values[layer], values[row : row + 1, :, start:end], at
      )
    result.append(Block(tuple(block_keys), tuple(block_values)))
    start = end
  return tuple(result)


def write_step(
    keys: jax.Array,
    values: jax.Array,
    new_keys: jax.Array,
    new_values: jax.Array,
    row: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Writes one layer's KV of a decode step to its row of a suffix block.

  Args:
    keys: [S, N, H, W * K].
    values: [S, N, W * K, H].
    new_keys: [S, N, K, H].
    new_values: [S, N, K, H].
    row: step within the block, 0 to W - 1.
  """
  at = row * new_keys.shape[2]
  new_keys = new_keys.transpose(0, 1, 3, 2).astype(keys.dtype)
  keys = jax.lax.dynamic_update_slice(keys, new_keys, (0, 0, 0, at))
  values = jax.lax.dynamic_update_slice(
      values, new_values.astype(values.dtype), (0, 0, at, 0)
  )
  return keys, values


def claim_row(ancestry: jax.Array, row: jax.Array) -> jax.Array:
  """Each beam owns the key that it is about to write to `row`.

  Row 0 opens the block again: what an earlier turn of the ring left is void.
  """
  slots, beams, width = ancestry.shape
  ancestry = jnp.where(row == 0, NOTHING, ancestry)
  own = jnp.arange(beams, dtype=ancestry.dtype)[None, :, None]
  own = jnp.broadcast_to(own, (slots, beams, 1))
  return jax.lax.dynamic_update_slice(ancestry, own, (0, 0, row))


def inherit(ancestry: jax.Array, parents: jax.Array) -> jax.Array:
  """Ancestry [S, K, W] after beam k went on from beam parents[s, k]."""
  return jnp.take_along_axis(ancestry, parents[:, :, None], 1)


def visible(ancestry: jax.Array) -> jax.Array:
  """Mask [S, K, W * K] over a suffix block: the keys of a beam's own past."""
  slots, beams, width = ancestry.shape
  rows = jnp.arange(beams, dtype=ancestry.dtype)
  return (ancestry[..., None] == rows).reshape(slots, beams, width * beams)
