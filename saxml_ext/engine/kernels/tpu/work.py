"""Which blocks of KV a decode step reads, as a list that a kernel goes through.

XLA's shapes are fixed when it compiles, the lengths of requests are not. So the
kernel's grid has one dim of variable size, an item for each block that is read,
and these arrays tell it what item i is. They are made once a step and serve all
layers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Work(NamedTuple):
  """Items of work, slot by slot; a slot's prompt comes before its suffix.

  An item needs a block of a prompt or of a suffix. Of the other kind it names
  the block that is there already, so that nothing is fetched for it.

  count [1] int32: items, at least 1; of those behind it nothing is defined.
  query [I + 1] int32: the queries that item i is for, 0 to C - 1; -1 behind the
  last item.
  entry [I] int32: which block of the slot, the prompt's before the suffix's.
  prompt_query, prompt_block, suffix_query, suffix_block [I] int32: what to
  have in fast memory.
  slots [C] int32: where in the KV the slots lie.
  reach [C] int32: tokens of their prompts; below 0: nobody waits for the slot.
  mask [C, K, T] int8: 1 where a beam sees a key of the suffix.
  """

  count: jax.Array
  query: jax.Array
  entry: jax.Array
  prompt_query: jax.Array
  prompt_block: jax.Array
  suffix_query: jax.Array
  suffix_block: jax.Array
  slots: jax.Array
  reach: jax.Array
  mask: jax.Array


def plan(
  reach: jax.Array,
  mask: jax.Array,
  slots: jax.Array,
  prompt_blocks: int,
  prompt_keys: int,
  suffix_keys: int,
) -> Work:
  """The work of a decode step.

  Args:
    reach: as of `Work`.
    mask: [C, K, T] bool. Each slot that is waited for sees some key.
    slots: as of `Work`.
    prompt_blocks: of the longest prompt.
    prompt_keys: in a block.
    suffix_keys: in a block; divides T.
  """
  count, beams, length = mask.shape
  waited = (reach >= 0)[:, None]
  begins = jnp.arange(prompt_blocks, dtype=jnp.int32) * prompt_keys
  needed = begins < jnp.maximum(reach, 1)[:, None]
  seen = mask.reshape(count, beams, length // suffix_keys, suffix_keys).any(
    (1, 3)
  )
  flags = (jnp.concatenate([needed, seen], 1) & waited).reshape(-1)
  entries = flags.size // count
  # Sorting puts what is needed first and keeps its order.
  order = jnp.argsort(~flags, stable=True).astype(jnp.int32)
  total = flags.sum(dtype=jnp.int32)
  place = jnp.arange(flags.size, dtype=jnp.int32)
  query, entry = order // entries, order % entries
  of_prompt = entry < prompt_blocks
  valid = place < total
  prompt = _latest(of_prompt & valid, place)
  suffix = _latest(~of_prompt & valid, place)
  return Work(
    jnp.maximum(total, 1)[None],
    jnp.append(jnp.where(valid, query, -1), -1).at[0].set(query[0]),
    entry,
    query[prompt],
    jnp.minimum(entry[prompt], prompt_blocks - 1),
    query[suffix],
    jnp.maximum(entry[suffix] - prompt_blocks, 0),
    slots,
    reach,
    mask.astype(jnp.int8),
  )


def _latest(flags: jax.Array, place: jax.Array) -> jax.Array:
  """Index of the last flag up to each place; before the first, of the first."""
  last = jax.lax.cummax(jnp.where(flags, place, -1))
  return jnp.where(last < 0, jnp.argmax(flags), last).astype(jnp.int32)
