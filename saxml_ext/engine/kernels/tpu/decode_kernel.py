"""Computes attention of a decode step on TPU with a Pallas kernel.

JAX's own kernels (jax.experimental.pallas.ops.tpu) support only one sequence of
keys per query. flash_attention and splash_attention are made for prompts.
paged_attention and ragged_paged_attention read each sequence at its own length,
but treat K beams as K sequences. They would read a group's prompt K times. Each
beam sees a tree of ancestors in the suffixes, which would have to be moved in
memory whenever beams are reordered. In this kernel all queries of a group read
each key of the group while it is in fast memory. A mask selects the visible
keys of the suffixes.

The kernel reads each block in `work.Work` once. So a slot costs its own length,
rounded up to a chunk, and a slot with an unused result costs nothing. The
kernel fetches blocks itself, several ahead. The pipeline of Pallas has an
overhead of 470 bundles per block, as long as reading 128 keys in int8.

The queries of all N heads and K beams are the rows of one matrix that is
block-diagonal over the heads. So heads and beams of the scores fill the rows of
whole registers. In either layout the keys pass through the matrix unit once.
"""

import functools
import math
from typing import NamedTuple, TypeAlias

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import logical
from saxml_ext.engine.kernels.tpu import block_list as work_lib

# Replaces masked scores: exp() of it minus any real score is exactly 0.
_MASKED = np.float32(-1e30)
# The number of rows of bfloat16 in a register.
_ROWS = 16
# The number of blocks in fast memory. One is in use, and the others are being
# fetched. The memory latency is about 1,500 cycles, the time to read three
# blocks of 128 keys in int8.
_BUFFERS = 4
# The part of fast memory that is reserved for the compiler.
_SPARE_BYTES = 8 << 20

# An array, or int8 values and the scales of their rows.
Parts: TypeAlias = tuple[jax.Array, ...]


class KV(NamedTuple):
  """Keys and values of all layers, in float or in int8 with scales.

  Prompts have keys [L, S, N, H, T] and values [L, S, N, T, H]. Suffixes have
  [L, S, N, T, H] for both. Scales are [L, S, N, T] float32.
  """

  keys: Parts
  values: Parts


class _Table(NamedTuple):
  """The scalars of a call: `work.Work` without its mask, and the layer [1]."""

  layer: jax.Array
  count: jax.Array
  query: jax.Array
  block: jax.Array
  chunks: jax.Array
  slots: jax.Array
  lengths: jax.Array


class _Scratch(NamedTuple):
  """The fast memory: buffers for blocks, and the state of the current slot.

  Attributes:
    prompt_keys: The keys of prompts, [B, N, H, T].
    suffix_keys: The keys of suffixes, [B, N, T, H].
    values: The values, [B, N, T, H].
    scales: The scales of keys and of values, [B, N, T] float32; empty without
      quantization.
    arrived: The semaphore that counts the bytes that have arrived, [B].
    queries: The block-diagonal queries, [R, N * H].
    peak: The largest score, repeated, [R, 128].
    total: The sum of weights, repeated, [R, 128].
    mixed: The weighted sum of values, [R, H].
  """

  prompt_keys: jax.Array
  suffix_keys: jax.Array
  values: jax.Array
  scales: Parts
  arrived: jax.Array
  queries: jax.Array
  peak: jax.Array
  total: jax.Array
  mixed: jax.Array


def attend(
  queries: jax.Array,
  work: work_lib.Work,
  layer: jax.Array,
  prompts: KV,
  suffixes: KV,
  blocks: work_lib.Blocks,
  cap: float | None = None,
  interpret: bool = False,
) -> jax.Array:
  """Computes attention of a decode step in one layer.

  Args:
    queries: The queries, [C, N, K, H] float32.
    work: The list of blocks to read.
    layer: The index of the layer, [] int32.
    prompts: The prompts' KV of S slots.
    suffixes: The suffixes' KV of the same slots.
    blocks: The numbers of keys in a block of `work`.
    cap: The cap of scores, which become cap * tanh(score / cap). None leaves
      them unchanged.
    interpret: True to run the kernel as plain operations, on any platform.

  Returns:
    The mixed values, [C, N, K, H] float32. They are zeros for slots whose
    results are unused.
  """
  size, heads, beams, width = queries.shape
  used = heads * beams
  rows = -(-used // _ROWS) * _ROWS
  x = queries.reshape(size, used, width)
  x = jnp.pad(x, ((0, 0), (0, rows - used), (0, 0)))
  scratch = _scratch(rows, heads, width, prompts, blocks)
  whole = pl.BlockSpec(memory_space=pltpu.VMEM)
  in_place = pl.BlockSpec(memory_space=pltpu.HBM)
  out = pl.pallas_call(
    functools.partial(_kernel, beams, blocks, cap),
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=len(_Table._fields),
      grid=(1,),
      in_specs=[
        whole,
        whole,
        *jax.tree.map(lambda _: in_place, (prompts, suffixes)),
      ],
      out_specs=whole,
      scratch_shapes=scratch,
    ),
    out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32),
    compiler_params=pltpu.CompilerParams(
      vmem_limit_bytes=_SPARE_BYTES
      + sum(map(_bytes, (x, x, work.mask, *jax.tree.leaves(scratch))))
    ),
    interpret=pltpu.InterpretParams() if interpret else False,
    name='attend_beams',
  )(*_Table(layer[None], *work[:-1]), x, work.mask, prompts, suffixes)
  return out[:, :used].reshape(queries.shape)


def _scratch(
  rows: int, heads: int, width: int, prompts: KV, blocks: work_lib.Blocks
) -> _Scratch:
  most = max(blocks.prompt, blocks.suffix)
  dtype = prompts.values[0].dtype

  def blocks_of(*shape: int, dtype=dtype):
    return pltpu.VMEM((_BUFFERS, heads, *shape), dtype)

  exact = dtype == jnp.float32
  scales = (blocks_of(most, dtype=jnp.float32),) * 2
  return _Scratch(
    blocks_of(width, blocks.prompt),
    blocks_of(blocks.suffix, width),
    blocks_of(most, width),
    scales if len(prompts.keys) > 1 else (),
    pltpu.SemaphoreType.DMA((_BUFFERS,)),
    pltpu.VMEM((rows, heads * width), jnp.float32 if exact else jnp.bfloat16),
    pltpu.VMEM((rows, logical.TILE), jnp.float32),
    pltpu.VMEM((rows, logical.TILE), jnp.float32),
    pltpu.VMEM((rows, width), jnp.float32),
  )


def _bytes(x) -> int:
  """Returns an upper bound of an array's bytes in fast memory, with padding."""
  if len(x.shape) < 2:  # Semaphores.
    return 0
  *leading, rows, lanes = x.shape
  padded = (-(-rows // 32) * 32) * (-(-lanes // logical.TILE) * logical.TILE)
  return int(np.prod(leading)) * padded * jnp.dtype(x.dtype).itemsize


def _kernel(beams: int, blocks: work_lib.Blocks, cap: float | None, *refs):
  """Processes all slots, block by block."""
  count = len(_Table._fields)
  table = _Table(*refs[:count])
  x, mask, prompts, suffixes, out, *scratch = refs[count:]
  s = _Scratch(*scratch)
  _, heads, _, width = s.values.shape
  out[...] = jnp.zeros_like(out)
  # A fetch may fill only a part of a block. The rest is multiplied with weights
  # of zero, so it must be finite.
  s.values[...] = jnp.zeros_like(s.values)
  for scale in s.scales:
    scale[...] = jnp.zeros_like(scale)
  items = table.count[0]
  head = jax.lax.broadcasted_iota(jnp.int32, (x.shape[1], 1), 0)
  beam, head = head % beams, head // beams

  def ahead(i):
    @pl.when(i < items)
    def _():
      _fetch(table, blocks, prompts, suffixes, s, i)

  def one(i, carry):
    ahead(i + _BUFFERS - 1)
    _wait(table, blocks, s, i)
    query, block, chunks = table.query[i], table.block[i], table.chunks[i]
    buffer = jax.lax.rem(i, _BUFFERS)

    @pl.when((chunks > 0) & (block == 0))
    def _():
      _begin(s, x[query] * np.float32(1 / np.sqrt(width)), head)

    @pl.when(chunks > 0)
    def _():
      keys = s.prompt_keys[buffer].astype(s.queries.dtype)
      keys = keys.reshape(heads * width, blocks.prompt)
      column = jax.lax.broadcasted_iota(jnp.int32, (1, blocks.prompt), 1)
      visible = column < table.lengths[query] - block * blocks.prompt
      _add(s, buffer, dot(s.queries[...], keys, 0), visible, head, cap)

    @pl.when(chunks == 0)
    def _():
      scores = 0
      for n in range(heads):
        keys = s.suffix_keys[buffer, n].astype(s.queries.dtype)
        part = s.queries[:, n * width : (n + 1) * width]
        scores += dot(part, keys, 1)
      visible = _by_row(mask[query, block].astype(jnp.int32), beam) != 0
      _add(s, buffer, scores, visible, head, cap)

    @pl.when(table.query[i + 1] != query)
    def _():
      out[query] = s.mixed[...] / s.total[:, :1]

    return carry

  for i in range(_BUFFERS - 1):
    ahead(i)
  jax.lax.fori_loop(0, items, one, 0)


def _fetch(
  table: _Table,
  blocks: work_lib.Blocks,
  prompts: KV,
  suffixes: KV,
  s: _Scratch,
  i: jax.Array,
) -> None:
  """Starts to copy the data of item `i`."""
  buffer = jax.lax.rem(i, _BUFFERS)
  layer, slot = table.layer[0], table.slots[table.query[i]]
  block, chunks = table.block[i], table.chunks[i]

  def copy(source, to, start: jax.Array, size: int | jax.Array, axis: int):
    """Copies `size` keys, which are dimension `axis` of [N, ...]."""
    index = [slice(None)] * (source.ndim - 2)
    from_, to_ = list(index), list(index)
    from_[axis], to_[axis] = pl.ds(start, size), pl.ds(0, size)
    source, to = source.at[layer, slot, *from_], to.at[buffer, *to_]
    pltpu.make_async_copy(source, to, s.arrived.at[buffer]).start()

  def copy_all(kv: KV, keys, start, size, axis: int) -> None:
    copy(kv.keys[0], keys, start, size, axis)
    copy(kv.values[0], s.values, start, size, 1)
    for scales, to in zip((*kv.keys[1:], *kv.values[1:]), s.scales):
      copy(scales, to, start, size, 1)

  @pl.when(chunks > 0)
  def _():
    start = pl.multiple_of(block * blocks.prompt, blocks.chunk)
    size = pl.multiple_of(chunks * blocks.chunk, blocks.chunk)
    copy_all(prompts, s.prompt_keys, start, size, 2)

  @pl.when(chunks == 0)
  def _():
    start = pl.multiple_of(block * blocks.suffix, blocks.suffix)
    copy_all(suffixes, s.suffix_keys, start, blocks.suffix, 1)


def _wait(
  table: _Table, blocks: work_lib.Blocks, s: _Scratch, i: jax.Array
) -> None:
  """Waits until the data of item `i` has arrived.

  The semaphore counts bytes. Keys and values have the same number of bytes.
  """
  buffer = jax.lax.rem(i, _BUFFERS)
  chunks = table.chunks[i]
  size = jnp.where(chunks > 0, chunks * blocks.chunk, blocks.suffix)
  size = pl.multiple_of(size, math.gcd(blocks.chunk, blocks.suffix))
  for to in (s.values, s.values, *s.scales):
    part = to.at[buffer, :, pl.ds(0, size)]
    pltpu.make_async_copy(part, part, s.arrived.at[buffer]).wait()


def _begin(s: _Scratch, x: jax.Array, head: jax.Array) -> None:
  """Starts a slot with queries [R, H], whose heads are `head` [R, 1]."""
  width = x.shape[1]
  for n in range(s.values.shape[1]):
    part = slice(n * width, (n + 1) * width)
    s.queries[:, part] = jnp.where(head == n, x, 0).astype(s.queries.dtype)
  s.peak[...] = jnp.full_like(s.peak, _MASKED)
  s.total[...] = jnp.zeros_like(s.total)
  s.mixed[...] = jnp.zeros_like(s.mixed)


def _add(
  s: _Scratch,
  buffer: jax.Array,
  scores: jax.Array,
  visible: jax.Array,
  head: jax.Array,
  cap: float | None,
) -> None:
  """Adds the contribution of a block's keys, whose scores are [R, T]."""
  length = scores.shape[1]
  if s.scales:
    scores *= _by_row(s.scales[0][buffer, :, :length], head)
  if cap is not None:
    scores = cap * jnp.tanh(scores * (1 / cap))
  scores = jnp.where(visible, scores, _MASKED)
  old = s.peak[:, :1]
  new = jnp.maximum(old, scores.max(1, keepdims=True))
  share = jnp.exp(old - new)
  weights = jnp.exp(scores - new)
  s.peak[...] = jnp.broadcast_to(new, s.peak.shape)
  s.total[...] = s.total[...] * share + weights.sum(1, keepdims=True)
  if s.scales:
    weights *= _by_row(s.scales[1][buffer, :, :length], head)
  weights = weights.astype(s.queries.dtype)
  mixed = s.mixed[...] * share
  for n in range(s.values.shape[1]):
    values = s.values[buffer, n, :length].astype(weights.dtype)
    mixed += jnp.where(head == n, dot(weights, values, 0), 0)
  s.mixed[...] = mixed


def _by_row(x: jax.Array, choice: jax.Array) -> jax.Array:
  """Returns [R, T]: the row of x [A, T] that each `choice` [R, 1] selects."""
  result = x[:1]
  for i in range(1, x.shape[0]):
    result = jnp.where(choice == i, x[i : i + 1], result)
  return result


def dot(x: jax.Array, y: jax.Array, contracted: int) -> jax.Array:
  """Returns the product of x [R, A] and y in float32.

  Args:
    x: The first factor.
    y: The second factor.
    contracted: The dimension of y that has size A.
  """
  exact = x.dtype == jnp.float32
  return jax.lax.dot_general(
    x,
    y,
    (((1,), (contracted,)), ((), ())),
    precision=jax.lax.Precision.HIGHEST if exact else None,
    preferred_element_type=jnp.float32,
  )
