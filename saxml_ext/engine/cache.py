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

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import quant

NOTHING = -1

# Keys or values, of any type that the cache may have.
KV = jax.Array | quant.QuantizedRows


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Block:
  """Keys [S, N, H, T] and values [S, N, T, H], one of each per layer.

  In a suffix block T runs over W steps, each with K beams: step-major.
  In int8 each key and each value, of H numbers, has a scale of its own.
  """

  keys: tuple[KV, ...]
  values: tuple[KV, ...]

  @property
  def length(self) -> int:
    return self.keys[0].shape[-1]


def keys_as(keys: jax.Array, dtype: str) -> KV:
  """Keys [..., H, T] in the cache's type."""
  return _as(keys, dtype, -2)


def values_as(values: jax.Array, dtype: str) -> KV:
  """Values [..., T, H] in the cache's type."""
  return _as(values, dtype, -1)


def _as(x: jax.Array, dtype: str, axis: int) -> KV:
  if dtype == "int8":
    return quant.quantize_along(x.astype(jnp.float32), axis)
  return x.astype(dtype)


def empty_block(
    model: config_lib.GPTJConfig, slots: int, length: int, dtype: str
) -> Block:
  """A block of zeros: finite, so that masked values add exactly nothing."""
  n, h = model.num_heads, model.head_dim
  layers = range(model.num_layers)
  return Block(
      tuple(keys_as(jnp.zeros((slots, n, h, length)), dtype) for _ in layers),
      tuple(values_as(jnp.zeros((slots, n, length, h)), dtype) for _ in layers),
  )


def insert_prompts(
    segments: Sequence[Block],
    layer: int,
    slots: jax.Array,
    start: int,
    keys: KV,
    values: KV,
) -> tuple[Block, ...]:
  """Writes one layer's prompt KV to its slots, cut at the segments' bounds.

  Args:
    segments: those that the prompts reach.
    layer: index of the layer.
    slots: [B] int32. Two rows may name one slot if they are equal.
    start: position of the first key.
    keys: [B, N, H, T].
    values: [B, N, T, H].
  """
  end = start + keys.shape[-1]
  result = []
  begin = 0  # Of the segment.
  for block in segments:
    low, high = max(start, begin), min(end, begin + block.length)
    if low < high:
      part = slice(low - start, high - start)
      block = _insert(
          block,
          layer,
          slots,
          low - begin,
          jax.tree.map(lambda x: x[..., part], keys),
          jax.tree.map(lambda x: x[:, :, part], values),
      )
    begin += block.length
    result.append(block)
  return tuple(result)


def _insert(
    block: Block,
    layer: int,
    slots: jax.Array,
    at: int,
    keys: KV,
    values: KV,
) -> Block:
  """Writes keys [B, N, H, T] and values [B, N, T, H] from column `at` on."""
  all_keys, all_values = list(block.keys), list(block.values)
  for row in range(slots.shape[0]):
    slot = slots[row]
    all_keys[layer] = _update(all_keys[layer], keys, row, (slot, 0, 0, at))
    all_values[layer] = _update(
        all_values[layer], values, row, (slot, 0, at, 0)
    )
  return Block(tuple(all_keys), tuple(all_values))


def _update(old: KV, new: KV, row: int, at: tuple[jax.Array | int, ...]) -> KV:
  return jax.tree.map(
      lambda a, b: jax.lax.dynamic_update_slice(a, b[row : row + 1], at),
      old,
      new,
  )


def of_slots(kv: KV, slots: jax.Array) -> KV:
  """One layer's keys or values [B, ...] of some slots [B]."""
  return jax.tree.map(lambda x: x[slots], kv)


def write_step(
    keys: KV,
    values: KV,
    new_keys: jax.Array,
    new_values: jax.Array,
    row: jax.Array,
    dtype: str,
) -> tuple[KV, KV]:
  """Writes one layer's KV of a decode step to its row of a suffix block.

  Args:
    keys: [S, N, H, W * K].
    values: [S, N, W * K, H].
    new_keys: [S, N, K, H].
    new_values: [S, N, K, H].
    row: step within the block, 0 to W - 1.
    dtype: of the cache.
  """
  at = row * new_keys.shape[2]

  def write(old: KV, new: KV, index: tuple[jax.Array | int, ...]) -> KV:
    return jax.tree.map(
        lambda a, b: jax.lax.dynamic_update_slice(a, b, index), old, new
    )

  return (
      write(
          keys, keys_as(new_keys.transpose(0, 1, 3, 2), dtype), (0, 0, 0, at)
      ),
      write(values, values_as(new_values, dtype), (0, 0, at, 0)),
  )


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
