"""Attention of a decode step: which keys the beams see, and how they are read.

On CPU and on TPU kernels of ours read for each slot the keys that it has.
Elsewhere, and where several CPU devices share the slots, XLA reads as many
columns for each as the slot needs that has most.
"""

from collections.abc import Callable, Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import beam_attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.kernels import kernels

# Called with queries [S, N, K * G, H] (see `attention.folded`), the block that
# is being written, and a layer; returns [S, N, K * G, H].
Attend = Callable[[jax.Array, cache.Block, layers_lib.Index], jax.Array]


class History(NamedTuple):
  """What a step's queries may see.

  reach [S] int32: tokens of each slot's prompt; below 0: nobody waits for the
  slot, and what comes out for it means nothing.
  segments: the prompts' KV.
  past: suffix blocks before the one that is being written.
  ancestry [S, K, W]: of `past`, and of the block being written, with this step's
  row claimed; of `cache.ancestry_dtype`.
  slots [S] int32: where in the blocks the slots lie. None: there are no others.
  """

  reach: jax.Array
  segments: Sequence[cache.Block]
  past: Sequence[cache.Block]
  ancestry: Sequence[jax.Array]
  slots: jax.Array | None = None


def over(history: History, cap: float | None = None, group: int = 1) -> Attend:
  """Attention over a history and the block that is being written.

  Args:
    history: what queries may see.
    cap: of scores, see `architecture.py`.
    group: The number of queries that share a key, G.
  """
  xla = by_xla(history, cap)
  if layers_lib.is_stacked(history.segments[0].keys):
    _, beams, steps = history.ancestry[-1].shape
    if reads_in_place(history.segments, history.past, steps * beams):
      return _over_stacked(history, cap, group)
    return xla

  def kernel(queries, current, layer):
    def of_layer(block: cache.Block):
      keys = layers_lib.at(block.keys, layer)
      return keys, layers_lib.at(block.values, layer)

    return kernels.attend(
      queries,
      history.reach,
      history.ancestry,
      [of_layer(block) for block in history.segments],
      [of_layer(block) for block in (*history.past, current)],
    )

  def attend(queries, current, layer):
    if not kernels.usable() or cap is not None:
      return xla(queries, current, layer)
    return jax.lax.platform_dependent(
      queries,
      cpu=lambda queries: kernel(queries, current, layer),
      default=lambda queries: xla(queries, current, layer),
    )

  return attend


def _over_stacked(history: History, cap: float | None, group: int) -> Attend:
  """As `over`, for layers that are stacked."""
  xla = by_xla(history, cap)
  (prompts,), (ancestry,) = history.segments, history.ancestry
  visible = attention.repeated(cache.visible(ancestry), group)
  kernel = beam_attention.over(
    history.reach, visible, history.slots, prompts, cap
  )

  def attend(queries, current, layer):
    return beam_attention.choose(
      lambda queries: kernel(queries, current, layer),
      lambda queries: xla(queries, current, layer),
      queries,
    )

  return attend


def reads_in_place(
  segments: Sequence[cache.Block], past: Sequence[cache.Block], suffix: int
) -> bool:
  """Whether on TPU slots are read where they lie, however few they are.

  Args:
    segments: as of `History`.
    past: as of `History`.
    suffix: length of the block that is being written.
  """
  return (
    len(segments) == 1
    and not past
    and beam_attention.usable(segments[0], suffix)
  )


def by_xla(history: History, cap: float | None = None) -> Attend:
  """As `over`, in operations of XLA."""
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
  """One layer's KV of a block, its mask, and whether it is live."""
  block, mask, live = part
  keys, values = block.keys, block.values
  if layers_lib.is_stacked(keys) and slots is None:
    return attention.Source(keys, values, mask, live, layer, rows)
  keys, values = layers_lib.at(keys, layer), layers_lib.at(values, layer)
  if slots is not None:
    keys, values = cache.of_slots(keys, slots), cache.of_slots(values, slots)
  return attention.Source(keys, values, mask, live, None, rows)
