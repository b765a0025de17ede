"""Stores the keys and values (KV) of beam groups.

A slot holds one request. The keys and values of its prompt are stored once, in
segments with fixed boundaries. The suffixes of its K beams are stored in a ring
of blocks of W decode steps each. The engine counts steps over all requests. At
step g every slot writes the K keys of its beams to row g of the ring. So each
step writes one slice, although the requests' ages differ.

If one block has a row for each step that a request may take, that block alone
is the ring. Its rows are then reused one by one.

Beams never move in memory. The ancestry table of each block, [S, K, W], gives
the row of K that holds beam k's key for a step. Its values are 0 to K - 1, or
-1 if the slot's request has written nothing. Reordering beams reorders only
this table. The table has the smallest type that fits; see `ancestry_dtype`.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import TypeAlias

import jax
from jax.experimental import layout
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.numerics import quant

# Keys or values in any number format of the cache.
KV: TypeAlias = jax.Array | quant.QuantizedRows
# One array for each layer, or one array with a leading dimension [L]; see
# `layers.py`.
PerLayer: TypeAlias = tuple[KV, ...] | KV


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Block:
  """The keys and values [S, N, T, H] of every layer.

  In a suffix block T covers W steps with K beams each, step by step. A prompt's
  keys are [S, N, H, T] instead, because all queries read all of them. In int8
  each key and each value of H numbers has its own scale, in an array [S, N, T].
  """

  keys: PerLayer
  values: PerLayer

  @property
  def length(self) -> int:
    return jax.tree.leaves(self.values)[0].shape[-2]


def keys_as(keys: jax.Array, dtype: str) -> KV:
  """Returns a prompt's keys [..., H, T] in the cache's format."""
  return _as(keys, dtype, -2)


def rows_as(rows: jax.Array, dtype: str) -> KV:
  """Returns keys of steps, or values, [..., T, H] in the cache's format."""
  return _as(rows, dtype, -1)


def _as(x: jax.Array, dtype: str, axis: int) -> KV:
  if dtype == 'int8':
    return quant.quantize_along(x.astype(jnp.float32), axis).compact()
  return x.astype(dtype)


def as_kept(
  keep: Callable[[jax.Array, str], KV],
  dtype: str,
  values: jax.Array,
  scale: jax.Array | None,
) -> KV:
  """Returns quantized keys or values in the form of the results of `keep`."""
  floats = jax.ShapeDtypeStruct(values.shape, jnp.float32)
  form = jax.eval_shape(lambda x: keep(x, dtype), floats)
  leaves = [values] if scale is None else [values, scale]
  shapes, tree = jax.tree.flatten(form)
  return jax.tree.unflatten(
    tree, [x.reshape(shape.shape) for x, shape in zip(leaves, shapes)]
  )


def empty_block(
  model: config_lib.ModelConfig,
  slots: int,
  length: int,
  dtype: str,
  stacked: bool = False,
  suffix: bool = False,
) -> Block:
  """Returns a block of zeros.

  Zeros are finite, so masked values add exactly nothing.

  Args:
    model: The configuration of the model, which gives the sizes.
    slots: The number of slots, S.
    length: The number of keys, T.
    dtype: The number format of the cache.
    stacked: True for one array of all layers.
    suffix: True for a block of decode steps, False for a block of prompts.
  """
  layers = model.num_layers
  leading = (layers, slots) if stacked else (slots,)
  n, h = model.kv_heads, model.head_dim
  values = rows_as, (*leading, n, length, h)
  keys = values if suffix else (keys_as, (*leading, n, h, length))

  def zeros(keep: Callable[..., KV], shape: tuple[int, ...]) -> KV:
    # XLA would quantize zeros while it compiles, which can take minutes.
    form = jax.eval_shape(lambda: keep(jnp.zeros(shape), dtype))
    return jax.tree.map(jnp.zeros_like, form)

  if stacked:
    return Block(zeros(*keys), zeros(*values))
  return Block(
    *(tuple(zeros(*kind) for _ in range(layers)) for kind in (keys, values))
  )


def insert_prompts(
  segments: Sequence[Block],
  layer: layers_lib.Index,
  slots: jax.Array,
  start: int,
  keys: KV,
  values: KV,
) -> tuple[Block, ...]:
  """Writes one layer's prompt KV to its slots, split at the segments' bounds.

  Args:
    segments: The segments that the prompts reach.
    layer: The index of the layer.
    slots: The slot of each row, [B] int32. Two equal rows may have the same
      slot. If the mesh splits the slots, the rows are in the order of
      `slot_parts.py`.
    start: The position of the first key.
    keys: The keys, [B, N, H, T]. Keys after the last segment are dropped.
    values: The values, [B, N, T, H].
  """
  end = start + keys.shape[-1]
  result = []
  begin = 0  # The start of the segment.
  for block in segments:
    low, high = max(start, begin), min(end, begin + block.length)
    if low < high:
      part = slice(low - start, high - start)
      block = insert(
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


def insert(
  block: Block,
  layer: layers_lib.Index,
  slots: jax.Array,
  at: int | jax.Array,
  keys: KV,
  values: KV,
) -> Block:
  """Writes keys [B, N, H, T] and values [B, N, T, H] from column `at` on.

  The other arguments are those of `insert_prompts`, for one block.
  """
  stacked = layers_lib.is_stacked(block.keys)
  block_spec = logical.spec(
    *(('layers',) if stacked else ()), 'slots', 'kv_heads'
  )
  row_spec = logical.spec('slots', 'kv_heads')

  def insert(local, block, keys, values, layer=layer):
    if local.present is not None:
      keys, values = _whole_tiles(block, at, keys, values)
    for row in range(local.index.shape[0]):
      new_keys, new_values = jax.tree.map(
        lambda x, row=row: x[row : row + 1], (keys, values)
      )
      slot = local.index[row]
      present = None if local.present is None else local.present[row]
      block = Block(
        _update(block.keys, layer, new_keys, slot, at, True, present),
        _update(block.values, layer, new_values, slot, at, False, present),
      )
    return block

  traced = (layer,) if stacked else ()
  return slot_parts.on_each(
    insert,
    slots,
    jax.tree.leaves(block.values)[0].shape[1 if stacked else 0],
    (block, keys, values, *traced),
    (block_spec, row_spec, row_spec, *[logical.spec()] * len(traced)),
    block_spec,
  )


def _whole_tiles(block: Block, at: int, keys: KV, values: KV) -> tuple[KV, KV]:
  """Returns keys and values that zeros extend to whole tiles if there is room.

  A conditional write first reads the old contents. For other lengths XLA for
  TPU would copy the cache. The zeros are never read: the part of the cache
  after a prompt is written later.
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
  present: jax.Array | None = None,
) -> PerLayer:
  """Returns `arrays` with the contents of one layer overwritten by `new`.

  Args:
    arrays: The arrays of all layers.
    layer: The index of the layer.
    new: The new contents, [slots, N, keys, H], or [slots, N, H, keys] if
      `columns` is True.
    slot: The first slot to write.
    at: The first key to write.
    columns: True if the last dimension counts the keys.
    present: True if the contents are to be written, [] bool. None stands for
      True.
  """

  def start(new: jax.Array) -> tuple[jax.Array | int, ...]:
    if new.ndim == 3:  # Scales.
      return slot, 0, at
    return (slot, 0, 0, at) if columns else (slot, 0, at, 0)

  def write(old: jax.Array, new: jax.Array, at: tuple) -> jax.Array:
    if present is not None:
      new = jnp.where(present, new, jax.lax.dynamic_slice(old, at, new.shape))
    return jax.lax.dynamic_update_slice(old, new, at)

  def one(old: jax.Array, new: jax.Array) -> jax.Array:
    return write(old, new, start(new))

  def one_of_stack(old: jax.Array, new: jax.Array) -> jax.Array:
    at = (layer, *start(new))
    new = jax.lax.platform_dependent(
      new[None], tpu=_in_order, default=lambda new: new
    )
    return write(old, new, at)

  if not isinstance(arrays, tuple):
    return jax.tree.map(one_of_stack, arrays, new)
  changed = jax.tree.map(one, arrays[layer], new)
  return (*arrays[:layer], changed, *arrays[layer + 1 :])


def _in_order(new: jax.Array) -> jax.Array:
  """Returns one layer's `new` [1, slots, N, ...] in row-major order.

  The cache has this order. Without the constraint, XLA for TPU would keep `new`
  in the order of its computation, and copy the whole cache to that order and
  back.
  """
  order = layout.Layout(tuple(range(new.ndim)))

  def constrain(new: jax.Array) -> jax.Array:
    return layout.with_layout_constraint(new, order)

  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or mesh.are_all_axes_manual:
    return constrain(new)
  # XLA cannot split this operation. It would gather the operand.
  split = (
    new.shape[1] % logical.parts('slots') == 0
  )  # Few slots do not divide among the parts.
  spec = logical.spec('layers', 'slots' if split else None, 'kv_heads')
  return jax.shard_map(constrain, in_specs=spec, out_specs=spec)(new)


def take_slots(kv: KV, slots: jax.Array) -> KV:
  """Returns one layer's keys or values [B, ...] of the given slots [B]."""
  return jax.tree.map(lambda x: x[slots], kv)


def take_prompts(kv: KV, slots: jax.Array) -> KV:
  """Returns the keys or values of a batch of prompts in slots [B].

  The order of the slots is that of `insert_prompts`.
  """
  spec = logical.spec('slots', 'kv_heads')
  return slot_parts.on_each(
    lambda local, kv: take_slots(kv, local.index),
    slots,
    jax.tree.leaves(kv)[0].shape[0],
    (kv,),
    (spec,),
    spec,
  )


def gather(block: Block, slots: jax.Array) -> Block:
  """Returns the block with only the given slots [C]."""
  at = (slice(None), slots) if layers_lib.is_stacked(block.keys) else slots
  return jax.tree.map(lambda x: x[at], block)


def scatter(block: Block, slots: jax.Array, new: Block) -> Block:
  """Returns the block in which `new` replaces the given slots [C]."""
  at = (slice(None), slots) if layers_lib.is_stacked(block.keys) else slots
  return jax.tree.map(lambda x, y: x.at[at].set(y), block, new)


def write_step(
  block: Block,
  layer: layers_lib.Index,
  new_keys: jax.Array,
  new_values: jax.Array,
  at: jax.Array,
  dtype: str,
  slots: jax.Array | None = None,
) -> Block:
  """Writes one layer's KV of a decode step to its rows of a suffix block.

  Args:
    block: The suffix block, W steps of K beams.
    layer: The index of the layer.
    new_keys: The keys, [S, N, K, H].
    new_values: The values, [S, N, K, H].
    at: The first row to write, [] int32.
    dtype: The number format of the cache.
    slots: The slots of the new rows, [C] int32, or None for all slots. The
      other slots get arbitrary finite values, so their results must be unused.
      If a CPU reads stacked blocks in place, they are not written, because
      memory that is never written costs nothing.
  """
  if slots is not None and in_place(block.keys):

    def write(i: jax.Array, block: Block) -> Block:
      keys, values = (
        jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, i, 1), kv)
        for kv in (rows_as(new_keys, dtype), rows_as(new_values, dtype))
      )
      return Block(
        _update(block.keys, layer, keys, slots[i], at),
        _update(block.values, layer, values, slots[i], at),
      )

    return jax.lax.fori_loop(0, slots.shape[0], write, block)

  def rows(new: jax.Array) -> KV:
    kv = rows_as(new, dtype)
    if slots is None:
      return kv
    # One slice for all slots costs less than one slice for each slot.
    size = jax.tree.leaves(block.keys)[0].shape[-4]
    source = jnp.argmax(slots == jnp.arange(size)[:, None], 1)
    return jax.tree.map(lambda x: x[source], kv)

  return Block(
    _update(block.keys, layer, rows(new_keys), 0, at),
    _update(block.values, layer, rows(new_values), 0, at),
  )


def in_place(keys: PerLayer) -> bool:
  """Returns True if the kernels for CPUs read these keys of all layers."""
  return layers_lib.is_stacked(keys) and kernels.usable()
