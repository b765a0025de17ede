"""Computes attention of a decode step on NVIDIA GPUs with Pallas kernels.

XLA cannot read a number of keys that only the data determine without a
conditional for each part of the keys. On a GPU a conditional waits for the host
and copies its operands.

Here each item of `block_list.Work` and each head is one program of a grid. So
even few long requests fill the card, and a slot costs its own length. All
queries of a head's group, of all beams, read each key once. The programs write
the sums of their blocks, and a second kernel joins the blocks of each slot.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels.tpu import block_list as work_lib
from saxml_ext.engine.kernels.tpu import decode_kernel

# Replaces masked scores: exp() of it minus any real score is exactly 0.
_MASKED = np.float32(-1e30)
# The minimum size of each dimension of a tensor core's product.
_ROWS = 16
# The maximum bytes of the keys that a program reads together. Two such arrays
# of keys and two of values are in shared memory, 228 KiB on an H100.
_STEP_BYTES = 16 << 10
_STEP_KEYS = 64
# The number of programs that fill a card: 8 for each multiprocessor of an H100.
_PROGRAMS = 1056
_MOST_KEYS = 1024
# The number of blocks that are joined together.
_JOINED = 16


class Sums(NamedTuple):
  """The partial sums of a softmax, as in `attention._Sums`.

  Attributes:
    peak: The largest score, [R].
    total: The sum of exp(score - peak), [R].
    mixed: The sum of the values weighted by exp(score - peak), [R, H].
  """

  peak: jax.Array
  total: jax.Array
  mixed: jax.Array


def blocks_for(heads: int, prompt_length: int) -> work_lib.Blocks:
  """Returns the largest blocks of which there are enough to fill a card.

  Args:
    heads: The number of heads that keys have, in all slots together.
    prompt_length: The length of the longest prompt.
  """
  most = heads * prompt_length // _PROGRAMS
  power = 1 << max(1, min(most, _MOST_KEYS)).bit_length() - 1
  return work_lib.Blocks(max(work_lib.CHUNK, power))


def attend(
  queries: jax.Array,
  work: work_lib.Work,
  prompts: decode_kernel.KV,
  suffixes: decode_kernel.KV,
  blocks: work_lib.Blocks,
  cap: float | None = None,
  group: int = 1,
  dtype: jnp.dtype = jnp.float32,
  interpret: bool = False,
) -> jax.Array:
  """Computes attention of a decode step in one layer.

  Args:
    queries: The queries of the C slots, [C, N, R, H] float32.
    work: The list of blocks to read.
    prompts: The prompts' KV of S slots, without a dimension of layers.
    suffixes: The suffixes' KV of the same slots.
    blocks: The numbers of keys in a block of `work`.
    cap: The cap of scores; see `architecture.py`.
    group: The number of queries of a beam that share a key, G. The order of
      the result in memory is that of beams, heads, and these queries.
    dtype: The type of the result.
    interpret: True to run the kernels as plain operations, on any platform.

  Returns:
    The mixed values, [C, N, R, H]. They are zeros for slots whose
    results are unused.
  """
  size, heads, rows, width = queries.shape
  items = work.block.size

  def partial(*shape: int) -> tuple[pl.BlockSpec, jax.ShapeDtypeStruct]:
    zeros = (0,) * len(shape)
    return (
      pl.BlockSpec((None, None, *shape), lambda head, i: (i, head, *zeros)),
      jax.ShapeDtypeStruct((items, heads, *shape), jnp.float32),
    )

  out_specs, shapes = zip(partial(rows), partial(rows), partial(rows, width))
  sums = pl.pallas_call(
    functools.partial(_attend_block, blocks, cap),
    grid=(heads, items),
    out_specs=out_specs,
    out_shape=shapes,
    compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
    interpret=interpret,
    name='attend_blocks',
  )(*work, queries, prompts, suffixes)
  # The items of slot c are those from bounds[c] to bounds[c + 1].
  query = work.query[:-1]
  before = (query >= 0) & (query < jnp.arange(size + 1)[:, None])
  bounds = before.sum(1, dtype=jnp.int32)
  mixed = pl.pallas_call(
    _join_blocks,
    grid=(rows, heads, size),
    out_specs=pl.BlockSpec(
      (None, None, None, None, width),
      lambda row, head, slot: (slot, row // group, head, row % group, 0),
    ),
    out_shape=jax.ShapeDtypeStruct(
      (size, rows // group, heads, group, width), dtype
    ),
    compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
    interpret=interpret,
    name='join_blocks',
  )(bounds, *sums)
  return mixed.swapaxes(1, 2).reshape(queries.shape)


def _attend_block(blocks: work_lib.Blocks, cap: float | None, *refs) -> None:
  """Writes the sums over the keys of one item and one head."""
  count = len(work_lib.Work._fields)
  work = work_lib.Work(*refs[:count])
  queries, prompts, suffixes, *out = refs[count:]
  head, item = pl.program_id(0), pl.program_id(1)
  rows, width = queries.shape[2:]
  held = pl.ds(0, power(rows, _ROWS))
  whole = pl.ds(0, power(width))
  step = min(step_keys(prompts), blocks.chunk)

  @pl.when(item < work.count[0])
  def _():
    query, block = work.query[item], work.block[item]
    x = scaled(_load(queries, query, head, held, whole), prompts)
    over = functools.partial(sum_steps, cap, x, step, (work.slots[query], head))

    def over_prompt() -> Sums:
      first = block * blocks.prompt
      left = jnp.minimum(work.lengths[query] - first, blocks.prompt)

      def visible(start: jax.Array) -> jax.Array:
        return (start + jnp.arange(step) < left)[None]

      return over(prompts, True, first, pl.cdiv(left, step), visible)

    def over_suffix() -> Sums:
      def visible(start: jax.Array) -> jax.Array:
        part = pl.ds(start, step)
        return _load(work.mask, query, block, held, part) != 0

      first = block * blocks.suffix
      return over(suffixes, False, first, blocks.suffix // step, visible)

    sums = jax.lax.cond(work.chunks[item] > 0, over_prompt, over_suffix)
    for ref, value in zip(out, sums):
      index = (held, whole)[: value.ndim]
      triton.store(ref.at[index], value, mask=_mask(ref, index))


def step_keys(kv: decode_kernel.KV, itemsize: int = 1) -> int:
  """Returns the number of keys that a program reads together.

  Args:
    kv: The keys and values.
    itemsize: The minimum size of a number in bytes, if it is converted.
  """
  values = kv.values[0]
  key_bytes = power(values.shape[-1]) * max(itemsize, values.dtype.itemsize)
  return min(_STEP_KEYS, max(_ROWS, _STEP_BYTES // key_bytes))


def scaled(x: jax.Array, kv: decode_kernel.KV) -> jax.Array:
  """Returns scaled queries in the type of products with keys."""
  values = kv.values[0]
  x = x * np.float32(1 / np.sqrt(values.shape[-1]))
  return x if values.dtype == jnp.float32 else x.astype(jnp.bfloat16)


def sum_steps(
  cap: float | None,
  x: jax.Array,
  step: int,
  index: tuple[jax.Array, jax.Array],
  kv: decode_kernel.KV,
  columns: bool,
  first: jax.Array,
  count: jax.Array | int,
  visible: Callable[[jax.Array], jax.Array] | None,
  sums: Sums | None = None,
) -> Sums:
  """Returns the sums over consecutive keys.

  Args:
    cap: The cap of scores.
    x: The queries, [R, H], in the type of the products.
    step: The number of keys that are read together.
    index: The slot and the head.
    kv: The keys and values.
    columns: True if the keys are [H, T], False if they are [T, H].
    first: The first key.
    count: The number of steps.
    visible: A function that returns the mask, [R or 1, step], of the keys from
      a start on. The start is relative to `first`. None if all are visible.
    sums: The sums to add to; None stands for no keys.
  """
  rows, width = x.shape
  whole = pl.ds(0, width)

  def add(i: jax.Array, sums: Sums) -> Sums:
    part = pl.ds(first + i * step, step)
    at = (whole, part) if columns else (part, whole)
    keys = _load(kv.keys[0], *index, *at)
    scores = decode_kernel.dot(x, keys.astype(x.dtype), 0 if columns else 1)
    for scale in kv.keys[1:]:
      scores *= _load(scale, *index, part)[None]
    if cap is not None:
      scores = cap * jnp.tanh(scores * (1 / cap))
    if visible is not None:
      scores = jnp.where(visible(i * step), scores, _MASKED)
    peak = jnp.maximum(sums.peak, scores.max(1))
    share = jnp.exp(sums.peak - peak)
    weights = jnp.exp(scores - peak[:, None])
    total = sums.total * share + weights.sum(1)
    for scale in kv.values[1:]:
      weights *= _load(scale, *index, part)[None]
    values = _load(kv.values[0], *index, part, whole).astype(x.dtype)
    mixed = decode_kernel.dot(weights.astype(x.dtype), values, 0)
    return Sums(peak, total, sums.mixed * share[:, None] + mixed)

  if sums is None:
    nothing = jnp.zeros(rows), jnp.zeros((rows, width))
    sums = Sums(jnp.full(rows, _MASKED), *nothing)
  return jax.lax.fori_loop(0, count, add, sums)


def _join_blocks(bounds, peaks, totals, mixed, out) -> None:
  """Writes the attention of one query, from the sums of its slot's items."""
  row, head, slot = map(pl.program_id, range(3))
  whole = pl.ds(0, power(out.shape[-1]))
  begin, end = bounds[slot], bounds[slot + 1]

  def add(i: jax.Array, sums: tuple) -> tuple:
    start = begin + i * _JOINED
    part = pl.ds(start, _JOINED)
    own = start + jnp.arange(_JOINED) < end
    old, total, values = sums
    items = triton.load(peaks.at[part, head, row], mask=own, other=_MASKED)
    peak = jnp.maximum(old, items.max())
    share, shares = jnp.exp(old - peak), jnp.exp(items - peak)
    items = triton.load(totals.at[part, head, row], mask=own, other=0.0)
    total = total * share + (items * shares).sum()
    index = (part, head, row, whole)
    held = own[:, None]
    if (within := _mask(mixed, index)) is not None:
      held &= within
    items = triton.load(mixed.at[index], mask=held, other=0.0)
    return peak, total, values * share + (items * shares[:, None]).sum(0)

  nothing = (_MASKED, np.float32(0), jnp.zeros(whole.size))
  count = pl.cdiv(end - begin, _JOINED)
  _, total, values = jax.lax.fori_loop(0, count, add, nothing)
  values /= jnp.where(total > 0, total, 1)
  values = values.astype(out.dtype)
  triton.store(out.at[whole], values, mask=_mask(out, (whole,)))


def power(size: int, least: int = 1) -> int:
  """Returns the least power of two that is at least `size` and `least`.

  The sizes of Triton's arrays are powers of two.
  """
  return max(least, 1 << (size - 1).bit_length())


def _load(ref, *index) -> jax.Array:
  """Returns elements of an array, with zeros after the ends of dimensions."""
  mask = _mask(ref, index)
  return triton.load(
    ref.at[index], mask=mask, other=None if mask is None else 0
  )


def _mask(ref, index: tuple) -> jax.Array | None:
  """Returns a mask of the elements that exist, or None if all do.

  Only slices with a static start may exceed their dimension.
  """
  parts = [
    (part, size)
    for part, size in zip(index, ref.shape)
    if isinstance(part, pl.Slice)
  ]
  mask = None
  for axis, (part, size) in enumerate(parts):
    if not isinstance(part.start, int) or part.start + part.size <= size:
      continue
    within = jnp.arange(part.size) < size
    if len(parts) > 1:
      within = within[None] if axis else within[:, None]
    mask = within if mask is None else mask & within
  return mask
