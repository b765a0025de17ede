"""Attention of a decode step on TPU, by a Pallas kernel of our own.

Why JAX's kernels (jax.experimental.pallas.ops.tpu) will not do: they know one
sequence of keys per query. flash_attention and splash_attention are of prompts.
paged_attention and ragged_paged_attention read each sequence's own length, but
K beams are K sequences to them: a group's prompt would be read K times, and the
suffixes, of which each beam sees a tree of ancestors, would have to be moved
in memory whenever beams are reordered. Here all queries of a group meet each of
its keys while that is in fast memory, and a mask says which of the suffixes'
they see.

What is read: the blocks in `work.Work`, each once; so a slot costs its own
length, rounded up to a block, and one that nobody waits for costs nothing.

The queries of all N heads and K beams are the rows of one matrix that is
block-diagonal over the heads: scores come out with heads and beams as the rows
of full registers. The keys pass through the matrix unit once either way.
"""

import functools
from typing import NamedTuple, TypeAlias

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels.tpu import work as work_lib

# Put in place of masked scores: exp() of it less any real score is exactly 0.
_MASKED = np.float32(-1e30)
# A register holds this many rows of bfloat16, and this many numbers a row.
_ROWS = 16
_LANES = 128

# An array, or int8 values and the scales of their rows.
Parts: TypeAlias = tuple[jax.Array, ...]


class KV(NamedTuple):
  """Keys and values of all layers, in float or in int8 with scales.

  Of prompts: keys [L, S, N, H, T], values [L, S, N, T, H]; of suffixes both [L,
  S, N, T, H]. Scales [L, S, N, T] float32.
  """

  keys: Parts
  values: Parts


class Blocks(NamedTuple):
  """Keys in a block of a prompt and of a suffix."""

  prompt: int
  suffix: int


class _Sizes(NamedTuple):
  """What the kernel is made for.

  heads N, beams K, rows R >= N * K of queries, width H; prompt_keys and
  suffix_keys in a block; prompt_blocks: a slot's entries from there on are of
  its suffix.
  """

  heads: int
  beams: int
  rows: int
  width: int
  prompt_keys: int
  suffix_keys: int
  prompt_blocks: int


def attend(
  queries: jax.Array,
  work: work_lib.Work,
  layer: jax.Array,
  prompts: KV,
  suffixes: KV,
  blocks: Blocks,
  interpret: bool = False,
) -> jax.Array:
  """Attention of a decode step, one layer.

  Args:
    queries: [C, N, K, H] float32.
    work: which blocks are read for which of the queries.
    layer: [] int32.
    prompts: of S slots.
    suffixes: of the same slots.
    blocks: of `work`.
    interpret: runs the kernel as plain operations, on any platform.

  Returns:
    [C, N, K, H] float32; zeros for what nobody waits for.
  """
  count, heads, beams, width = queries.shape
  used = heads * beams
  rows = -(-used // _ROWS) * _ROWS
  padding = ((0, 0), (0, rows - used), (0, 0))
  x = queries.reshape(count, used, width) * np.float32(1 / np.sqrt(width))
  x = jnp.pad(x, padding)
  mask = jnp.pad(jnp.tile(work.mask, (1, heads, 1)), padding)
  sizes = _Sizes(
    heads, beams, rows, width, *blocks, prompts.values[0].shape[3] // blocks[0]
  )
  exact = prompts.values[0].dtype == jnp.float32
  scalars = (layer[None], *work[1:-1])
  by_query = pl.BlockSpec((None, rows, width), _query_at)
  out = pl.pallas_call(
    functools.partial(_kernel, sizes),
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=len(scalars),
      grid=(work.count[0],),
      in_specs=[
        by_query,
        pl.BlockSpec((None, rows, blocks.suffix), _mask_at),
        _specs(prompts, sizes, blocks.prompt, _prompt_at, columns=True),
        _specs(suffixes, sizes, blocks.suffix, _suffix_at, columns=False),
      ],
      out_specs=by_query,
      scratch_shapes=[
        pltpu.VMEM(
          (rows, heads * width), jnp.float32 if exact else jnp.bfloat16
        ),
        pltpu.VMEM((rows, _LANES), jnp.float32),
        pltpu.VMEM((rows, _LANES), jnp.float32),
        pltpu.VMEM((rows, width), jnp.float32),
      ],
    ),
    out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32),
    compiler_params=pltpu.CompilerParams(dimension_semantics=('arbitrary',)),
    interpret=interpret,
    name='attend_beams',
  )(*scalars, x, mask, prompts, suffixes)
  out = out[:, :used].reshape(queries.shape)
  # Rows without work have not been written: anything may stand there.
  return jnp.where((work.reach >= 0)[:, None, None, None], out, 0)


class _Scalars(NamedTuple):
  """The scalars as the kernel and the index maps get them."""

  layer: jax.Array
  query: jax.Array
  entry: jax.Array
  prompt_query: jax.Array
  prompt_block: jax.Array
  suffix_query: jax.Array
  suffix_block: jax.Array
  slots: jax.Array
  reach: jax.Array


def _query_at(i, *scalars):
  return _Scalars(*scalars).query[i], 0, 0


def _mask_at(i, *scalars):
  s = _Scalars(*scalars)
  return s.suffix_query[i], 0, s.suffix_block[i]


def _prompt_at(i, *scalars):
  """Layer, slot and block."""
  s = _Scalars(*scalars)
  return s.layer[0], s.slots[s.prompt_query[i]], s.prompt_block[i]


def _suffix_at(i, *scalars):
  """Layer, slot and block."""
  s = _Scalars(*scalars)
  return s.layer[0], s.slots[s.suffix_query[i]], s.suffix_block[i]


def _specs(kv: KV, sizes: _Sizes, t: int, at, columns: bool) -> KV:
  """Which blocks of `kv` an item gets; columns: keys are [..., H, T]."""
  n, h = sizes.heads, sizes.width

  def columns_at(i, *scalars):
    layer, slot, block = at(i, *scalars)
    return layer, slot, 0, 0, block

  def rows_at(i, *scalars):
    layer, slot, block = at(i, *scalars)
    return layer, slot, 0, block, 0

  def scales_at(i, *scalars):
    layer, slot, block = at(i, *scalars)
    return layer, slot, 0, block

  by_columns = pl.BlockSpec((None, None, n, h, t), columns_at)
  by_rows = pl.BlockSpec((None, None, n, t, h), rows_at)
  scale = (pl.BlockSpec((None, None, n, t), scales_at),) * (len(kv.keys) - 1)
  keys = by_columns if columns else by_rows
  return KV((keys, *scale), (by_rows, *scale))


def _kernel(sizes: _Sizes, *refs):
  """One block's share in the attention of one slot.

  Scratch: queries [R, N * H], and of the softmax in progress the largest score
  and the sum of weights [R, 128], each number repeated, and the weighted values
  [R, H].
  """
  count = len(_Scalars._fields)
  s = _Scalars(*refs[:count])
  x, mask, prompt, suffix, out, queries, peak, total, mixed = refs[count:]
  i = pl.program_id(0)
  entry, query = s.entry[i], s.query[i]
  head = jax.lax.broadcasted_iota(jnp.int32, (sizes.rows, 1), 0) // sizes.beams

  @pl.when(entry == 0)
  def _():
    for n in range(sizes.heads):
      part = slice(n * sizes.width, (n + 1) * sizes.width)
      queries[:, part] = jnp.where(head == n, x[...], 0).astype(queries.dtype)
    peak[...] = jnp.full_like(peak, _MASKED)
    total[...] = jnp.zeros_like(total)
    mixed[...] = jnp.zeros_like(mixed)

  def add(scores, visible, kv: KV):
    """Adds what the block's keys, whose scores are [R, T], contribute."""
    if len(kv.keys) > 1:
      scores *= _by_head(kv.keys[1], head)
    scores = jnp.where(visible, scores, _MASKED)
    old = peak[:, :1]
    new = jnp.maximum(old, scores.max(1, keepdims=True))
    share = jnp.exp(old - new)
    weights = jnp.exp(scores - new)
    peak[...] = jnp.broadcast_to(new, peak.shape)
    total[...] = total[...] * share + weights.sum(1, keepdims=True)
    if len(kv.values) > 1:
      weights *= _by_head(kv.values[1], head)
    weights = weights.astype(queries.dtype)
    sums = mixed[...] * share
    for n in range(sizes.heads):
      values = kv.values[0][n].astype(queries.dtype)
      sums += jnp.where(head == n, _dot(weights, values, 0), 0)
    mixed[...] = sums

  @pl.when(entry < sizes.prompt_blocks)
  def _():
    keys = prompt.keys[0][...].astype(queries.dtype)
    keys = keys.reshape(sizes.heads * sizes.width, sizes.prompt_keys)
    column = jax.lax.broadcasted_iota(jnp.int32, (1, sizes.prompt_keys), 1)
    visible = column < s.reach[query] - entry * sizes.prompt_keys
    add(_dot(queries[...], keys, 0), visible, prompt)

  @pl.when(entry >= sizes.prompt_blocks)
  def _():
    scores = jnp.zeros((sizes.rows, sizes.suffix_keys), jnp.float32)
    for n in range(sizes.heads):
      part = slice(n * sizes.width, (n + 1) * sizes.width)
      keys = suffix.keys[0][n].astype(queries.dtype)
      scores += _dot(queries[:, part], keys, 1)
    add(scores, mask[...].astype(jnp.int32) != 0, suffix)

  @pl.when(s.query[i + 1] != query)
  def _():
    out[...] = mixed[...] / total[:, :1]


def _by_head(scales, head: jax.Array) -> jax.Array:
  """Scales [N, T] for the rows of queries: [R, T]."""
  result = scales[:1]
  for n in range(1, scales.shape[0]):
    result = jnp.where(head == n, scales[n : n + 1], result)
  return result


def _dot(x: jax.Array, y: jax.Array, contracted: int) -> jax.Array:
  """Product of x [R, A] and y, whose dim `contracted` has size A; float32."""
  exact = x.dtype == jnp.float32
  return jax.lax.dot_general(
    x,
    y,
    (((1,), (contracted,)), ((), ())),
    precision=jax.lax.Precision.HIGHEST if exact else None,
    preferred_element_type=jnp.float32,
  )
