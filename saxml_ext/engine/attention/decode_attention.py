"""Attention of a decode step: which keys the beams see, and how they are read.

On CPU and on TPU kernels of ours read for each slot the keys that it has.
Elsewhere, and where several CPU devices share the slots, XLA reads as many
columns for each as the slot needs that has most.

The kernel on TPU wants stacked layers, prompts in one piece, and suffixes in
one block that wraps, in lengths and widths of whole registers: `config.tiled`
gives these for heads of a multiple of 128. For any other cache there is XLA.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.kernels.tpu import block_list as work_lib
from saxml_ext.engine.kernels.tpu import decode_kernel
from saxml_ext.engine.numerics import quant

# Called with queries [S, N, K * G, H] (see `attention.folded`), the block that
# is being written, and a layer; returns [S, N, K * G, H].
Attend = Callable[[jax.Array, cache.Block, layers_lib.Index], jax.Array]

# A prompt's block has at most so many keys, and on each device at most so many
# bytes of them. On v5e, of 4 heads of 256 in int8, 384 keys take the kernel
# 1,100 bundles and the memory 1,440 cycles, at 819 GB/s and 1.5 GHz.
_BLOCK_KEYS = 384
_BLOCK_BYTES = 1 << 20

# Blocks for tests that run the kernel on CPU; see `interpreted`.
_interpreted: work_lib.Blocks | None = None


class History(NamedTuple):
  """The keys that a step's queries may see.

  reach [S] int32: tokens of each slot's prompt; below 0: nobody waits for the
  slot, and what comes out for it means nothing.
  segments: the prompts' KV.
  past: suffix blocks before the one that is being written.
  ancestry [S, K, W]: of `past`, and of the block being written, with this
  step's row claimed; of `cache.ancestry_dtype`.
  slots [S] int32: where in the blocks the slots lie. None: there are no others.
  """

  reach: jax.Array
  segments: Sequence[cache.Block]
  past: Sequence[cache.Block]
  ancestry: Sequence[jax.Array]
  slots: jax.Array | None = None


def over(history: History, cap: float | None = None, group: int = 1) -> Attend:
  """Returns attention over a history and the block that is being written.

  Args:
    history: The keys that queries may see.
    cap: The cap of scores, see `architecture.py`.
    group: The number of queries that share a key, G.
  """
  xla = by_xla(history, cap)
  if layers_lib.is_stacked(history.segments[0].keys):
    _, beams, steps = history.ancestry[-1].shape
    if reads_in_place(history.segments, history.past, steps * beams):
      return _over_stacked(history, cap, group)
    return xla
  if cap is not None:
    return xla
  return _chosen(kernels.choose, functools.partial(_on_cpu, history), xla)


def _over_stacked(history: History, cap: float | None, group: int) -> Attend:
  """Returns attention as `over` does, for layers that are stacked."""
  xla = by_xla(history, cap)
  (prompts,), (ancestry,) = history.segments, history.ancestry
  visible = attention.repeated(cache.visible(ancestry), group)
  on_tpu = by_kernel(history.reach, visible, history.slots, prompts, cap)
  return _chosen(choose, on_tpu, xla)


def _chosen(choose: Callable, kernel: Attend, xla: Attend) -> Attend:
  """Returns attention by a kernel or by XLA, as `choose` decides."""

  def attend(queries, current, layer):
    return choose(
      lambda queries: kernel(queries, current, layer),
      lambda queries: xla(queries, current, layer),
      queries,
    )

  return attend


def _on_cpu(
  history: History,
  queries: jax.Array,
  current: cache.Block,
  layer: layers_lib.Index,
) -> jax.Array:
  """Attends by the kernel for CPUs; see `Attend`."""

  def of_layer(block: cache.Block) -> tuple[cache.KV, cache.KV]:
    keys = layers_lib.at(block.keys, layer)
    return keys, layers_lib.at(block.values, layer)

  return kernels.attend(
    queries,
    history.reach,
    history.ancestry,
    [of_layer(block) for block in history.segments],
    [of_layer(block) for block in (*history.past, current)],
  )


def reads_in_place(
  segments: Sequence[cache.Block], past: Sequence[cache.Block], suffix: int
) -> bool:
  """Returns True if on TPU slots are read where they lie, however few they are.

  Args:
    segments: as of `History`.
    past: as of `History`.
    suffix: length of the block that is being written.
  """
  return len(segments) == 1 and not past and usable(segments[0], suffix)


def by_xla(history: History, cap: float | None = None) -> Attend:
  """Returns attention as `over` does, in operations of XLA."""
  reach = history.reach
  prompts = []
  start = 0
  for block in history.segments:
    within = jnp.arange(start, start + block.length) < reach[:, None]
    prompts.append((block, within[:, None], (reach > start).any()))
    start += block.length
  *masks, current_mask = [cache.visible(a) for a in history.ancestry]
  waited = (reach >= 0)[:, None, None]
  past = [
    (block, mask, (mask & waited).any())
    for block, mask in zip(history.past, masks)
  ]

  source = functools.partial(_source, history.slots)

  def attend(queries, current, layer):
    sources = [
      source((current, current_mask, None), layer, rows=True),  # Is live.
      *[source(part, layer, rows=False) for part in prompts],
      *[source(part, layer, rows=True) for part in past],
    ]
    return attention.attend(queries, sources, cap)

  return attend


def _source(
  slots: jax.Array | None,
  part: tuple[cache.Block, jax.Array, jax.Array | None],
  layer: layers_lib.Index,
  rows: bool,
) -> attention.Source:
  """Returns one layer's KV of a block, its mask, and whether it is live."""
  block, mask, live = part
  keys, values = block.keys, block.values
  if layers_lib.is_stacked(keys) and slots is None:
    return attention.Source(keys, values, mask, live, layer, rows)
  keys, values = layers_lib.at(keys, layer), layers_lib.at(values, layer)
  if slots is not None:
    keys, values = cache.of_slots(keys, slots), cache.of_slots(values, slots)
  return attention.Source(keys, values, mask, live, None, rows)


@contextlib.contextmanager
def interpreted(blocks: work_lib.Blocks) -> Iterator[None]:
  """Runs the kernel as plain operations in what is traced within, for tests.

  It does so on any platform.

  Args:
    blocks: keys in a block, small enough for a test to have several.
  """
  global _interpreted
  _interpreted = blocks
  try:
    yield
  finally:
    _interpreted = None


def choose(on_tpu: Callable, elsewhere: Callable, *args):
  """Returns the result of one of two functions, by the target platform."""
  if _interpreted is not None:
    return on_tpu(*args)
  return jax.lax.platform_dependent(*args, tpu=on_tpu, default=elsewhere)


def usable(prompts: cache.Block, suffix: int) -> bool:
  """Returns True if the kernel can read these, and suffixes of that length."""
  if not layers_lib.is_stacked(prompts.keys):
    return False
  if _interpreted is not None:
    return True
  width = jax.tree.leaves(prompts.values)[0].shape[-1]
  sizes = (prompts.length, suffix, width)
  return not any(size % logical.TILE for size in sizes)


def by_kernel(
  reach: jax.Array,
  visible: jax.Array,
  slots: jax.Array | None,
  prompts: cache.Block,
  cap: float | None = None,
) -> Callable[[jax.Array, cache.Block, layers_lib.Index], jax.Array]:
  """Returns attention by the TPU's kernel; its work is planned once for all.

  Args:
    reach: [C] int32, tokens of each slot's prompt; below 0: nobody waits.
    visible: [C, K, W * K] bool, over the suffixes.
    slots: [C] int32, where in the cache they are; None: there are no others.
      Slots that are split among devices must be all there are.
    prompts: all segments in one, stacked.
    cap: of scores, see `architecture.py`.

  Returns:
    See `Attend`.
  """
  blocks = _interpreted or _blocks(prompts)
  interpret = _interpreted is not None

  def plan(reach, visible, *slots) -> work_lib.Work:
    here = slots[0] if slots else jnp.arange(reach.size, dtype=jnp.int32)
    return work_lib.plan(reach, visible, here, prompts.length, blocks)

  by_slot = logical.spec('slots')
  args = (reach, visible) if slots is None else (reach, visible, slots)
  # XLA would make the mask again in each layer.
  work = jax.lax.optimization_barrier(
    _on_each_device(plan, by_slot, by_slot)(*args)
  )
  fields = work_lib.Work(*[by_slot] * len(work))

  def run(queries, work, layer, prompts, suffixes):
    return decode_kernel.attend(
      queries, work, layer, prompts, suffixes, blocks, cap, interpret
    )

  def attend(queries, current, layer):
    stacked = logical.spec('layers', 'slots', 'kv_heads')
    heads = logical.spec('slots', 'kv_heads')
    specs = (heads, fields, logical.spec(), stacked, stacked)
    return _on_each_device(run, specs, heads)(
      queries, work, jnp.int32(layer), _parts(prompts), _parts(current)
    )

  return attend


def _on_each_device(function: Callable, in_specs, out_specs) -> Callable:
  """`function` of each device's part of the arguments."""
  if jax.sharding.get_abstract_mesh().empty:
    return function
  # XLA cannot split a kernel and would gather what it is called with.
  return jax.shard_map(
    function, in_specs=in_specs, out_specs=out_specs, check_vma=False
  )


def _blocks(prompts: cache.Block) -> work_lib.Blocks:
  """Returns the keys that a device reads together."""
  values = jax.tree.leaves(prompts.values)[0]
  *_, heads, length, width = values.shape
  key = heads // logical.parts('kv_heads') * width * values.dtype.itemsize
  most = min(_BLOCK_KEYS, _BLOCK_BYTES // key, length)
  return work_lib.Blocks(
    max(1, most // work_lib.CHUNK) * work_lib.CHUNK, work_lib.CHUNK
  )


def _parts(block: cache.Block) -> decode_kernel.KV:
  def parts(kv: cache.KV) -> decode_kernel.Parts:
    if isinstance(kv, quant.QuantizedRows):
      return kv.values, kv.scale
    return (kv,)

  return decode_kernel.KV(parts(block.keys), parts(block.values))
