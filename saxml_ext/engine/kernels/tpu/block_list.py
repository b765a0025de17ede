"""Lists the blocks of KV that a decode step reads, for a kernel to go through.

XLA's shapes are fixed when it compiles, the lengths of requests are not. So the
kernel loops over a list of variable length, an item for each block that is
read. The list is made once a step and serves all layers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Keys that are read together at the least: as many as a register is wide.
CHUNK = 128


class Blocks(NamedTuple):
  """Keys in a block of a prompt and of a suffix, and those read together.

  A prompt's last block is read in chunks up to the prompt's end. A suffix's
  block has none to spare: it is read whole.
  """

  prompt: int
  suffix: int = CHUNK
  chunk: int = CHUNK


class Work(NamedTuple):
  """Items of work, slot by slot; a slot's prompt comes before its suffix.

  count [1] int32: items; of those behind them nothing is defined.
  query [I + 1] int32: the queries that item i is for, 0 to C - 1; -1 behind the
  last item.
  block [I] int32: which one of the prompt, or of the suffix.
  chunks [I] int32: how much of the prompt's block is read; 0: it is a suffix's.
  slots [C] int32: where in the KV the slots lie.
  reach [C] int32: tokens of their prompts; below 0: nobody waits for the slot.
  mask [C, blocks, K, keys] int8: 1 where a beam sees a key of the suffix.
  """

  count: jax.Array
  query: jax.Array
  block: jax.Array
  chunks: jax.Array
  slots: jax.Array
  reach: jax.Array
  mask: jax.Array


def plan(
  reach: jax.Array,
  visible: jax.Array,
  slots: jax.Array,
  prompt_length: int,
  blocks: Blocks,
) -> Work:
  """Returns the work of a decode step.

  Args:
    reach: as of `Work`.
    visible: [C, K, T] bool, over the suffixes. Who is waited for sees some key.
    slots: as of `Work`.
    prompt_length: of the longest prompt.
    blocks: sizes.
  """
  size, beams, _ = visible.shape
  mask = visible.reshape(size, beams, -1, blocks.suffix).transpose(0, 2, 1, 3)
  begins = jnp.arange(0, prompt_length, blocks.prompt, dtype=jnp.int32)
  # A prompt has a token: softmax begins with a key that all beams see.
  left = jnp.maximum(reach, 1)[:, None] - begins
  flags = jnp.concatenate([left > 0, mask.any((2, 3))], 1)
  flags = (flags & (reach >= 0)[:, None]).reshape(-1)
  # Sorting puts what is needed first and keeps its order.
  order = jnp.argsort(~flags, stable=True).astype(jnp.int32)
  entries = flags.size // size
  query, entry = order // entries, order % entries
  of_suffix = entry - begins.size
  block = jnp.where(of_suffix < 0, entry, of_suffix)
  left = jnp.minimum(reach[query] - block * blocks.prompt, blocks.prompt)
  chunks = jnp.maximum(-(-left // blocks.chunk), 1)
  count = flags.sum(dtype=jnp.int32)
  valid = jnp.arange(flags.size) < count
  return Work(
    count[None],
    jnp.append(jnp.where(valid, query, -1), -1).astype(jnp.int32),
    block,
    jnp.where(of_suffix < 0, chunks, 0),
    slots,
    reach,
    mask.astype(jnp.int8),
  )
