"""KV cache of beam groups.

A slot holds one request. Its prompt's keys and values are stored once, cut at
fixed boundaries into segments. Its K beams' suffixes lie in a ring of blocks,
each of W decode steps: at step g of the engine (counted over all requests)
every slot writes the K keys of its beams to the same place, row g of the ring,
so that a step's write is one slice however the requests' ages differ.

A block with a row for each step that a request may take is a ring by itself:
its rows are taken again one by one.

Beams never move in memory. Which row of K holds beam k's key for a step is
told by the ancestry table, [S, K, W] of each block: 0 to K - 1, or -1 where
the slot's request has written nothing. Reordering beams reorders that table.
It is of the smallest type that holds that, see `ancestry_dtype`.
"""

from collections.abc import Sequence
import dataclasses
from typing import TypeAlias

import jax
from jax.experimental import layout
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.numerics import quant

NOTHING = -1

# Keys or values, of any type that the cache may have.
KV: TypeAlias = jax.Array | quant.QuantizedRows
# One for each layer, or one with a leading dim [L]; see `layers.py`.
PerLayer: TypeAlias = tuple[KV, ...] | KV


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Block:
  """Keys and values [S, N, T, H] of every layer.

  In a suffix block T runs over W steps, each with K beams: step-major. A
  prompt's keys are [S, N, H, T] instead, for all of them meet all queries. In
  int8 each key and each value, of H numbers, has a scale of its own, of [S, N,
  T].
  """

  keys: PerLayer
  values: PerLayer

  @property
  def length(self) -> int:
    return jax.tree.leaves(self.values)[0].shape[-2]


def keys_as(keys: jax.Array, dtype: str) -> KV:
  """A prompt's keys [..., H, T] in the cache's type."""
  return _as(keys, dtype, -2)


def rows_as(rows: jax.Array, dtype: str) -> KV:
  """Keys of steps, or values, [..., T, H] in the cache's type."""
  return _as(rows, dtype, -1)


def _as(x: jax.Array, dtype: str, axis: int) -> KV:
  if dtype == 'int8':
    return quant.quantize_along(x.astype(jnp.float32), axis).compact()
  return x.astype(dtype)


def empty_block(
  model: config_lib.ModelConfig,
  slots: int,
  length: int,
  dtype: str,
  stacked: bool = False,
  suffix: bool = False,
) -> Block:
  """A block of zeros: finite, so that masked values add exactly nothing.

  Args:
    model: its sizes.
    slots: S.
    length: T.
    dtype: of the cache.
    stacked: in one array for all layers.
    suffix: for decode steps, not for prompts.
  """
  n, h = model.kv_heads, model.head_dim

  def zeros(*leading: int) -> tuple[KV, KV]:
    rows = rows_as(jnp.zeros((*leading, slots, n, length, h)), dtype)
    if suffix:
      return rows, jax.tree.map(jnp.copy, rows)
    return keys_as(jnp.zeros((*leading, slots, n, h, length)), dtype), rows

  if stacked:
    return Block(*zeros(model.num_layers))
  return Block(*zip(*[zeros() for _ in range(model.num_layers)]))


def insert_prompts(
  segments: Sequence[Block],
  layer: layers_lib.Index,
  slots: jax.Array,
  start: int,
  keys: KV,
  values: KV,
) -> tuple[Block, ...]:
  """Writes one layer's prompt KV to its slots, cut at the segments' bounds.

  Args:
    segments: those that the prompts reach.
    layer: index of the layer.
    slots: [B] int32. Two rows may name one slot if they are equal. On meshes
      that split the slots, in the order of `slot_parts.py`.
    start: position of the first key.
    keys: [B, N, H, T]. What lies beyond the last segment is dropped.
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
  layer: layers_lib.Index,
  slots: jax.Array,
  at: int,
  keys: KV,
  values: KV,
) -> Block:
  """Writes keys [B, N, H, T] and values [B, N, T, H] from column `at` on."""
  stacked = layers_lib.is_stacked(block.keys)
  of_block = logical.spec(
    *(('layers',) if stacked else ()), 'slots', 'kv_heads'
  )
  of_rows = logical.spec('slots', 'kv_heads')

  def insert(places, block, keys, values, layer=layer):
    if places.here is not None:
      keys, values = _whole_tiles(block, at, keys, values)
    for row in range(places.index.shape[0]):
      new_keys, new_values = jax.tree.map(
        lambda x, row=row: x[row : row + 1], (keys, values)
      )
      slot = places.index[row]
      here = None if places.here is None else places.here[row]
      block = Block(
        _update(block.keys, layer, new_keys, slot, at, True, here),
        _update(block.values, layer, new_values, slot, at, False, here),
      )
    return block

  traced = (layer,) if stacked else ()
  return slot_parts.on_each(
    insert,
    slots,
    jax.tree.leaves(block.values)[0].shape[1 if stacked else 0],
    (block, keys, values, *traced),
    (of_block, of_rows, of_rows, *[logical.spec()] * len(traced)),
    of_block,
  )


def _whole_tiles(block: Block, at: int, keys: KV, values: KV) -> tuple[KV, KV]:
  """Keys and values with zeros behind them, to whole tiles if they have room.

  What is written conditionally is read first, and of other lengths XLA for TPU
  would copy the cache. Nobody looks behind a prompt, and what follows it is
  written later.
  """
  length = jax.tree.leaves(values)[0].shape[2]
  more = -length % logical.TILE
  if at + length + more > block.length:
    return keys, values

  def fill(x: jax.Array, axis: int) -> jax.Array:
    return jnp.pad(x, [(0, more if i == axis else 0) for i in range(x.ndim)])

  return (
    jax.tree.map(lambda x: fill(x, x.ndim - 1), keys),
    jax.tree.map(lambda x: fill(x, 2), values),
  )


def _update(
  arrays: PerLayer,
  layer: layers_lib.Index,
  new: KV,
  slot: jax.Array | int,
  at: jax.Array | int,
  columns: bool = False,
  here: jax.Array | None = None,
) -> PerLayer:
  """`arrays` of one layer, with `new` written from a slot and a key on.

  Args:
    arrays: of all layers.
    layer: index of the layer.
    new: [slots, N, keys, H], or if `columns` [slots, N, H, keys].
    slot: the first.
    at: the first key.
    columns: whether keys are the last dim.
    here: [] bool, whether anything is to be written; None: it is.
  """

  def place(new: jax.Array) -> tuple[jax.Array | int, ...]:
    if new.ndim == 3:  # Scales.
      return slot, 0, at
    return (slot, 0, 0, at) if columns else (slot, 0, at, 0)

  def write(old: jax.Array, new: jax.Array, at: tuple) -> jax.Array:
    if here is not None:
      new = jnp.where(here, new, jax.lax.dynamic_slice(old, at, new.shape))
    return jax.lax.dynamic_update_slice(old, new, at)

  def one(old: jax.Array, new: jax.Array) -> jax.Array:
    return write(old, new, place(new))

  def one_of_stack(old: jax.Array, new: jax.Array) -> jax.Array:
    at = (layer, *place(new))
    new = jax.lax.platform_dependent(
      new[None], tpu=_in_order, default=lambda new: new
    )
    return write(old, new, at)

  if not isinstance(arrays, tuple):
    return jax.tree.map(one_of_stack, arrays, new)
  changed = jax.tree.map(one, arrays[layer], new)
  return (*arrays[:layer], changed, *arrays[layer + 1 :])


def _in_order(new: jax.Array) -> jax.Array:
  """One layer's `new` [1, slots, N, ...] in row-major order, as the cache is.

  XLA for TPU would rather leave it as it was computed, and copy the whole cache
  to that order and back.
  """
  order = layout.Layout(tuple(range(new.ndim)))

  def constrain(new: jax.Array) -> jax.Array:
    return layout.with_layout_constraint(new, order)

  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or mesh.are_all_axes_manual:
    return constrain(new)
  # XLA cannot split this operation and would gather what it is applied to.
  split = (
    new.shape[1] % logical.parts('slots') == 0
  )  # Else there are but a few of the slots.
  spec = logical.spec('layers', 'slots' if split else None, 'kv_heads')
  return jax.shard_map(constrain, in_specs=spec, out_specs=spec)(new)


def of_slots(kv: KV, slots: jax.Array) -> KV:
  """One layer's keys or values [B, ...] of some slots [B]."""
  return jax.tree.map(lambda x: x[slots], kv)


def of_prompts(kv: KV, slots: jax.Array) -> KV:
  """The same of the slots [B] of a batch of prompts, see `insert_prompts`."""
  spec = logical.spec('slots', 'kv_heads')
  return slot_parts.on_each(
    lambda places, kv: of_slots(kv, places.index),
    slots,
    jax.tree.leaves(kv)[0].shape[0],
    (kv,),
    (spec,),
    spec,
  )


def gather(block: Block, slots: jax.Array) -> Block:
  """The block of some slots [C] alone."""
  at = (slice(None), slots) if layers_lib.is_stacked(block.keys) else slots
  return jax.tree.map(lambda x: x[at], block)


def scatter(block: Block, slots: jax.Array, new: Block) -> Block:
  """The block with those slots [C] replaced."""
  at = (slice(None), slots) if layers_lib.is_stacked(block.keys) else slots
  return jax.tree.map(lambda x, y: x.at[at].set(y), block, new)


def write_step(
  block: Block,
  layer: layers_lib.Index,
  new_keys: jax.Array,
  new_values: jax.Array,
  row: jax.Array,
  dtype: str,
  slots: jax.Array | None = None,
) -> Block:
  """Writes one layer's KV of a decode step to its row of a suffix block.

  Args:
    block: W steps of K beams.
    layer: index of the layer.
    new_keys: [S, N, K, H].
    new_values: [S, N, K, H].
    row: step within the block, 0 to W - 1.
    dtype: of the cache.
    slots: [C] int32, where the new rows belong if they are not of all slots.
      The rows of the others get something finite: nobody may wait for them.
  """
  at = row * new_keys.shape[2]

  def rows(new: jax.Array) -> KV:
    kv = rows_as(new, dtype)
    if slots is None:
      return kv
    # One slice for all slots costs less than one for each of those.
    size = jax.tree.leaves(block.keys)[0].shape[-4]
    source = jnp.argmax(slots == jnp.arange(size)[:, None], 1)
    return jax.tree.map(lambda x: x[source], kv)

  return Block(
    _update(block.keys, layer, rows(new_keys), 0, at),
    _update(block.values, layer, rows(new_values), 0, at),
  )


def ancestry_dtype(beams: int) -> type[np.signedinteger]:
  """The type of ancestry tables: the smallest that numbers so many beams."""
  return np.int8 if beams - 1 <= np.iinfo(np.int8).max else np.int16


def claim_row(
  ancestry: jax.Array, row: jax.Array, wraps: bool = False
) -> jax.Array:
  """Each beam owns the key that it is about to write to `row`.

  Row 0 opens the block again: what an earlier turn of the ring left is void. If
  the block `wraps`, being the whole ring, only what was in that row is.
  """
  slots, beams, width = ancestry.shape
  if not wraps:
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
