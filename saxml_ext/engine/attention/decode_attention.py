"""Computes attention for a decode step, with a kernel or with XLA.

The engine's own kernels read only the keys of each slot. If several CPU devices
share the slots, and for other caches than those below, XLA computes the
attention. It reads as many columns for each slot as the longest slot needs.

The kernels for TPU and GPU require prompts in one segment, and suffixes in one
block that wraps. `platform_configs.tiled` gives such sizes. Stacked layers on a
mesh are for TPU. Its kernel requires stacked layers. Lengths and widths must be
whole registers, so heads must be a multiple of 128. The kernel for GPU requires
unrolled layers, because XLA for GPU would copy each layer of a stack.
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
from saxml_ext.engine.attention import steps as steps_lib
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.kernels.gpu import decode_kernel as gpu_kernel
from saxml_ext.engine.kernels.tpu import block_list as work_lib
from saxml_ext.engine.kernels.tpu import decode_kernel
from saxml_ext.engine.numerics import quant

# A function of queries [S, N, K * G, H] (see `attention.folded`), the block
# that is being written, and a layer. It returns [S, N, K * G, H].
Attend = Callable[[jax.Array, cache.Block, layers_lib.Index], jax.Array]

# The maximum number of keys in a prompt's block, and their maximum size in
# bytes on each TPU. On v5e, 384 keys of 4 heads of 256 in int8 take 1,100
# bundles of the kernel and 1,440 cycles of memory traffic, at 819 GB/s and 1.5
# GHz.
_BLOCK_KEYS = 384
_BLOCK_BYTES = 1 << 20

# The block sizes of tests that run the kernel on CPU; see `interpreted`.
_interpreted: work_lib.Blocks | None = None


class History(NamedTuple):
  """The keys that a step's queries may see.

  Attributes:
    lengths: The number of tokens in each slot's prompt, [S] int32. If negative,
      the slot's result is unused and arbitrary.
    segments: The prompts' KV.
    past: The suffix blocks before the one that is being written.
    ancestry: The ancestry of `past` and of the block being written, [S, K, W],
      in the type of `steps_lib.ancestry_dtype`. This step's row is already claimed.
    slots: The positions of the slots in the blocks, [S] int32. None stands for
      all slots.
  """

  lengths: jax.Array
  segments: Sequence[cache.Block]
  past: Sequence[cache.Block]
  ancestry: Sequence[jax.Array]
  slots: jax.Array | None = None


def over(
  history: History,
  cap: float | None = None,
  group: int = 1,
  rows_per_step: int = 0,
  dtype: jnp.dtype = jnp.float32,
) -> Attend:
  """Returns attention over a history and the block that is being written.

  Args:
    history: The keys that queries may see.
    cap: The cap of scores; see `architecture.py`.
    group: The number of queries that share a key, G.
    rows_per_step: The number of rows that a step has in the blocks; 0 stands
      for K.
    dtype: The type of the results of the kernel for GPU.
  """
  xla = by_xla(history, cap, rows_per_step)
  _, beams, steps = history.ancestry[-1].shape
  by_platform = chooser(history.segments, history.past, steps * beams, cap)
  if by_platform is None:
    return xla
  kernel: Attend = functools.partial(_on_cpu, history)
  if not _by_cpu_kernel(history.segments[0]):
    # XLA merges these operations with those above. Without them, the text of a
    # TPU program would not be the one that its kept costs are of. Remove this
    # line when all costs are made again.
    xla = by_xla(history, cap)
    (prompts,), (ancestry,) = history.segments, history.ancestry
    visible = attention.repeated(steps_lib.visible(ancestry), group)
    kernel = by_kernel(
      history.lengths, visible, history.slots, prompts, cap, group, dtype
    )

  def attend(queries, current, layer):
    return by_platform(
      lambda queries: kernel(queries, current, layer),
      lambda queries: xla(queries, current, layer),
      queries,
    )

  return attend


def chooser(
  segments: Sequence[cache.Block],
  past: Sequence[cache.Block],
  suffix: int,
  cap: float | None,
) -> Callable | None:
  """Returns a function that chooses whether a kernel reads the KV.

  Its arguments are those of `choose`: a function for the platform of the
  kernel, a function for all other platforms, and the arguments of both. A
  kernel reads slots in place even if they are few.

  Args:
    segments: The prompts' KV, as in `History`.
    past: The earlier suffix blocks, as in `History`.
    suffix: The length of the block that is being written.
    cap: The cap of scores; see `architecture.py`.

  Returns:
    The function, or None if no kernel can read this KV.
  """
  if _by_cpu_kernel(segments[0]):
    return kernels.choose if cap is None else None
  if len(segments) == 1 and not past and usable(segments[0], suffix):
    return choose
  return None


def _by_cpu_kernel(prompts: cache.Block) -> bool:
  """Returns True if the only kernel that may read this KV is that for CPUs."""
  if not layers_lib.is_stacked(prompts.keys):
    return not _on_gpu()
  return cache.in_place(prompts.keys) and _interpreted is None


def _on_gpu() -> bool:
  """Returns True if programs are traced for a GPU."""
  # This is known before the program is lowered, so that programs for other
  # platforms do not trace the kernel.
  return logical.platform() == 'gpu'


def _on_cpu(
  history: History,
  queries: jax.Array,
  current: cache.Block,
  layer: layers_lib.Index,
) -> jax.Array:
  """Computes attention with the kernel for CPUs; see `Attend`."""
  stacked = layers_lib.is_stacked(current.keys)

  def layer_kv(block: cache.Block) -> tuple[cache.KV, cache.KV]:
    if stacked:
      return block.keys, block.values
    return layers_lib.at(block.keys, layer), layers_lib.at(block.values, layer)

  slots = history.slots
  if slots is None:
    slots = jnp.arange(queries.shape[0], dtype=jnp.int32)
  return kernels.attend(
    queries,
    history.lengths,
    history.ancestry,
    [layer_kv(block) for block in history.segments],
    [layer_kv(block) for block in (*history.past, current)],
    slots,
    layer if stacked else 0,
  )


def by_xla(
  history: History, cap: float | None = None, rows_per_step: int = 0
) -> Attend:
  """Returns attention as `over` does, computed by XLA operations."""
  lengths = history.lengths
  prompts = []
  start = 0
  for block in history.segments:
    within = jnp.arange(start, start + block.length) < lengths[:, None]
    prompts.append((block, within[:, None], (lengths > start).any()))
    start += block.length
  *masks, current_mask = [
    steps_lib.visible(a, rows_per_step) for a in history.ancestry
  ]
  waited = (lengths >= 0)[:, None, None]
  past = [
    (block, mask, (mask & waited).any())
    for block, mask in zip(history.past, masks)
  ]

  source = functools.partial(_source, history.slots)

  def attend(queries, current, layer):
    sources = [
      source((current, current_mask, None), layer, rows=True),  # Always live.
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
  """Returns one layer of a block as a source of keys."""
  block, mask, live = part
  keys, values = block.keys, block.values
  if layers_lib.is_stacked(keys) and slots is None:
    return attention.Source(keys, values, mask, live, layer, rows)
  keys, values = layers_lib.at(keys, layer), layers_lib.at(values, layer)
  if slots is not None:
    keys, values = (
      cache.take_slots(keys, slots),
      cache.take_slots(values, slots),
    )
  return attention.Source(keys, values, mask, live, None, rows)


@contextlib.contextmanager
def interpreted(blocks: work_lib.Blocks) -> Iterator[None]:
  """Traces the kernel as plain operations on any platform, for tests.

  Args:
    blocks: The number of keys in a block, small enough for a test to have
      several blocks.
  """
  global _interpreted
  _interpreted = blocks
  try:
    yield
  finally:
    _interpreted = None


def is_interpreted() -> bool:
  """Returns True within `interpreted`."""
  return _interpreted is not None


def choose(with_kernel: Callable, elsewhere: Callable, *args):
  """Returns the result of one of two functions, by the target platform.

  The first one runs on TPUs and GPUs.
  """
  if is_interpreted() or _on_gpu():
    return with_kernel(*args)
  return jax.lax.platform_dependent(*args, tpu=with_kernel, default=elsewhere)


def usable(prompts: cache.Block, suffix: int) -> bool:
  """Returns True if the platform's kernel can read these prompts and suffixes.

  Args:
    prompts: The prompts' KV.
    suffix: The length of the suffix block.
  """
  if layers_lib.is_stacked(prompts.keys) == _on_gpu():
    return False
  if _interpreted is not None:
    return True
  width = jax.tree.leaves(prompts.values)[0].shape[-1]
  sizes = (prompts.length, suffix, 0 if _on_gpu() else width)
  return not any(size % logical.TILE for size in sizes)


def by_kernel(
  lengths: jax.Array,
  visible: jax.Array,
  slots: jax.Array | None,
  prompts: cache.Block,
  cap: float | None = None,
  group: int = 1,
  dtype: jnp.dtype = jnp.float32,
) -> Callable[[jax.Array, cache.Block, layers_lib.Index], jax.Array]:
  """Returns attention by the kernel for TPU or GPU, with one plan for all layers.

  Args:
    lengths: The number of tokens in each slot's prompt, [C] int32. If negative,
      the slot's result is unused.
    visible: The mask over the suffixes, [C, K, W * K] bool.
    slots: The positions of the slots in the cache, [C] int32. None stands for
      all slots. It must be None if devices share the slots.
    prompts: The prompts' KV in one segment, stacked on TPU.
    cap: The cap of scores; see `architecture.py`.
    group: The number of queries that share a key, G.
    dtype: The type of the results on a GPU.

  Returns:
    The attention; see `Attend`.
  """
  on_gpu = _on_gpu()
  blocks = _interpreted or _blocks(prompts, lengths.size)
  interpret = is_interpreted()

  def plan(lengths, visible, *slots) -> work_lib.Work:
    here = slots[0] if slots else jnp.arange(lengths.size, dtype=jnp.int32)
    return work_lib.plan(lengths, visible, here, prompts.length, blocks)

  by_slot = logical.spec('slots')
  args = (lengths, visible) if slots is None else (lengths, visible, slots)
  # Without the barrier XLA would compute the mask again in each layer.
  work = jax.lax.optimization_barrier(
    _on_each_device(plan, by_slot, by_slot)(*args)
  )
  fields = work_lib.Work(*[by_slot] * len(work))

  def run(queries, work, layer, prompts, suffixes):
    if on_gpu:
      return gpu_kernel.attend(
        queries, work, prompts, suffixes, blocks, cap, group, dtype, interpret
      )
    return decode_kernel.attend(
      queries, work, layer, prompts, suffixes, blocks, cap, interpret
    )

  def attend(queries, current, layer):
    heads = logical.spec('slots', 'kv_heads')
    kv = heads if on_gpu else logical.spec('layers', 'slots', 'kv_heads')
    specs = (heads, fields, logical.spec(), kv, kv)
    sources = [prompts, current]
    if on_gpu:
      sources = [_layer(block, layer) for block in sources]
    return _on_each_device(run, specs, heads)(
      queries, work, jnp.int32(layer), *map(operands, sources)
    )

  return attend


def _on_each_device(function: Callable, in_specs, out_specs) -> Callable:
  """Returns `function` applied to each device's part of the arguments."""
  if jax.sharding.get_abstract_mesh().empty:
    return function
  # XLA cannot split a kernel. It would gather the arguments.
  return jax.shard_map(
    function, in_specs=in_specs, out_specs=out_specs, check_vma=False
  )


def _layer(block: cache.Block, layer: layers_lib.Index) -> cache.Block:
  return cache.Block(
    layers_lib.at(block.keys, layer), layers_lib.at(block.values, layer)
  )


def _blocks(prompts: cache.Block, slots: int) -> work_lib.Blocks:
  """Returns the number of keys that a device reads together."""
  values = jax.tree.leaves(prompts.values)[0]
  *_, heads, length, width = values.shape
  if _on_gpu():
    split = logical.parts('slots') * logical.parts('kv_heads')
    return gpu_kernel.blocks_for(slots * heads // split, length)
  key = heads // logical.parts('kv_heads') * width * values.dtype.itemsize
  most = min(_BLOCK_KEYS, _BLOCK_BYTES // key, length)
  return work_lib.Blocks(
    max(1, most // work_lib.CHUNK) * work_lib.CHUNK, work_lib.CHUNK
  )


def operands(block: cache.Block) -> decode_kernel.KV:
  """Returns the operands of a kernel that reads keys and values."""

  def parts(kv: cache.KV) -> decode_kernel.Parts:
    if isinstance(kv, quant.QuantizedRows):
      return kv.values, kv.scale
    return (kv,)

  return decode_kernel.KV(parts(block.keys), parts(block.values))
