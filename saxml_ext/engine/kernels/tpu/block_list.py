"""Lists the blocks of KV that a decode step reads, as input of a kernel.

XLA compiles for fixed shapes, but the lengths of requests vary. So the kernel
loops over a list of variable length, with one item for each block to read. The
list is computed once per step and serves all layers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# The minimum number of keys that are read together, which is the width of a
# register.
CHUNK = 128


class Blocks(NamedTuple):
  """The numbers of keys in a prompt's block, a suffix's block and a chunk.

  A prompt's last block is read in chunks up to the prompt's end. A suffix's
  block is always read whole.
  """

  prompt: int
  suffix: int = CHUNK
  chunk: int = CHUNK


class Work(NamedTuple):
  """Items of work, slot by slot; a slot's prompt comes before its suffix.

  Attributes:
    count: The number of items, [1] int32. The contents after them are
      undefined.
    query: The slot of each item among the queries, 0 to C - 1, [I + 1] int32.
      It is -1 after the last item.
    block: The index of the block in the prompt or in the suffix, [I] int32.
    chunks: The number of chunks of the prompt's block to read, [I] int32. 0 for
      a block of a suffix.
    slots: The positions of the slots in the KV, [C] int32.
    lengths: The number of tokens in their prompts, [C] int32. If negative, the
      slot's result is unused.
    mask: 1 where a beam sees a key of the suffix, [C, blocks, K, keys] int8.
  """

  count: jax.Array
  query: jax.Array
  block: jax.Array
  chunks: jax.Array
  slots: jax.Array
  lengths: jax.Array
  mask: jax.Array


def plan(
  lengths: jax.Array,
  visible: jax.Array,
  slots: jax.Array,
  prompt_length: int,
  blocks: Blocks,
) -> Work:
  """Returns the work of a decode step.

  Args:
    lengths: The number of tokens in each slot's prompt, as in `Work`.
    visible: The mask over the suffixes, [C, K, T] bool. Each slot whose result
      is used sees at least one key.
    slots: The positions of the slots in the KV, as in `Work`.
    prompt_length: The length of the longest prompt.
    blocks: The numbers of keys in a block.
  """
  size, beams, _ = visible.shape
  mask = visible.reshape(size, beams, -1, blocks.suffix).transpose(0, 2, 1, 3)
  begins = jnp.arange(0, prompt_length, blocks.prompt, dtype=jnp.int32)
  # A prompt has at least one token. So the softmax begins with a key that all
  # beams see.
  left = jnp.maximum(lengths, 1)[:, None] - begins
  flags = jnp.concatenate([left > 0, mask.any((2, 3))], 1)
  flags = (flags & (lengths >= 0)[:, None]).reshape(-1)
  # The stable sort moves the required items to the front and keeps their order.
  order = jnp.argsort(~flags, stable=True).astype(jnp.int32)
  entries = flags.size // size
  query, entry = order // entries, order % entries
  suffix_block = entry - begins.size
  block = jnp.where(suffix_block < 0, entry, suffix_block)
  left = jnp.minimum(lengths[query] - block * blocks.prompt, blocks.prompt)
  chunks = jnp.maximum(-(-left // blocks.chunk), 1)
  count = flags.sum(dtype=jnp.int32)
  valid = jnp.arange(flags.size) < count
  return Work(
    count[None],
    jnp.append(jnp.where(valid, query, -1), -1).astype(jnp.int32),
    block,
    jnp.where(suffix_block < 0, chunks, 0),
    slots,
    lengths,
    mask.astype(jnp.int8),
  )
