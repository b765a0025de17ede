"""Attention of a decode step on TPU: binds the kernel to the engine's cache.

The kernel wants stacked layers, prompts in one piece, and suffixes in one block
that wraps, in lengths and widths of whole registers: what `config.tiled` gives
for heads of a multiple of 128. For any other cache there is XLA.
"""

from collections.abc import Callable, Iterator
import contextlib

import jax
import jax.numpy as jnp

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine.attention import cache
from saxml_ext.engine.kernels.tpu import block_list as work_lib
from saxml_ext.engine.kernels.tpu import decode_kernel as kernel
from saxml_ext.engine.kernels.tpu import target
from saxml_ext.engine.numerics import quant

# A prompt's block has at most so many keys, and on each device at most so many
# bytes of them. On v5e, of 4 heads of 256 in int8, 384 keys take the kernel
# 1,100 bundles and the memory 1,440 cycles, at 819 GB/s and 1.5 GHz.
_BLOCK_KEYS = 384
_BLOCK_BYTES = 1 << 20

# Blocks for tests that run the kernel on CPU; see `interpreted`.
_interpreted: work_lib.Blocks | None = None


@contextlib.contextmanager
def interpreted(blocks: work_lib.Blocks) -> Iterator[None]:
  """What is traced within runs the kernel as plain operations, on any platform.

  For tests.

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
  """The result of one of two functions, by what is compiled for."""
  if _interpreted is not None:
    return on_tpu(*args)
  return jax.lax.platform_dependent(*args, tpu=on_tpu, default=elsewhere)


def usable(prompts: cache.Block, suffix: int) -> bool:
  """Whether the kernel can read these, and suffixes of that length."""
  if not layers_lib.is_stacked(prompts.keys):
    return False
  if _interpreted is not None:
    return True
  width = jax.tree.leaves(prompts.values)[0].shape[-1]
  sizes = (prompts.length, suffix, width)
  return not any(size % target.TILE for size in sizes)


def over(
  reach: jax.Array,
  visible: jax.Array,
  slots: jax.Array | None,
  prompts: cache.Block,
  cap: float | None = None,
) -> Callable[[jax.Array, cache.Block, layers_lib.Index], jax.Array]:
  """Attention over prompts and suffixes; the work is planned once for all layers.

  Args:
    reach: [C] int32, tokens of each slot's prompt; below 0: nobody waits.
    visible: [C, K, W * K] bool, over the suffixes.
    slots: [C] int32, where in the cache they are; None: there are no others.
      Slots that are split among devices must be all there are.
    prompts: all segments in one, stacked.
    cap: of scores, see `architecture.py`.

  Returns:
    As `decode_attention.Attend`.
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
    return kernel.attend(
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
  """Keys that a device reads together."""
  values = jax.tree.leaves(prompts.values)[0]
  *_, heads, length, width = values.shape
  key = heads // logical.parts('kv_heads') * width * values.dtype.itemsize
  most = min(_BLOCK_KEYS, _BLOCK_BYTES // key, length)
  return work_lib.Blocks(
    max(1, most // work_lib.CHUNK) * work_lib.CHUNK, work_lib.CHUNK
  )


def _parts(block: cache.Block) -> kernel.KV:
  def parts(kv: cache.KV) -> kernel.Parts:
    if isinstance(kv, quant.QuantizedRows):
      return kv.values, kv.scale
    return (kv,)

  return kernel.KV(parts(block.keys), parts(block.values))
