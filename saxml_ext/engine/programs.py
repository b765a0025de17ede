"""Defines the device programs of the engine: prefill, decode, score.

They are pure functions of explicit state. `executables.py` compiles them, and
`runner.py` calls them.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine import model
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import packing
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.attention import steps as steps_lib
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import search
from saxml_ext.engine.search import streams
from saxml_ext.engine.search import trace


def empty_state(
  settings: state.Settings, stacked: bool, weights: weights_lib.Weights
) -> state.Empty:
  """Returns the state of an engine without requests.

  Args:
    settings: The static settings.
    stacked: True if layers and their KV are stacked. Static.
    weights: The weights, which are not used. Every program gets them.
  """
  del weights
  made = state.empty(settings, stacked)
  if settings.engine.max_context:
    # Most of the long cache is never used, so it is not even written.
    segments, ring, trace = jax.tree.map(
      _zeros, (made.segments, made.ring, made.slots.searches.trace)
    )
    slots = jax.tree.map(jnp.copy, made.slots)
    searches = dataclasses.replace(slots.searches, trace=trace)
    slots = dataclasses.replace(slots, searches=searches)
    return state.Empty(segments, ring, slots)
  # The copies are separate, because a buffer that occurs twice cannot be
  # donated.
  return jax.tree.map(jnp.copy, made)


def _zeros(like: jax.Array) -> jax.Array:
  return kernels.choose(
    lambda _: kernels.zeros(like.shape, like.dtype),
    lambda _: jnp.zeros(like.shape, like.dtype),
    jnp.int32(0),
  )


def prefill_chunk(
  settings: state.Settings,
  start: int | jax.Array,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  tokens: jax.Array,
  slots: jax.Array,
) -> tuple[cache.Block, ...]:
  """Prefills a chunk of prompts that is not their last.

  Args:
    settings: The static settings.
    start: The position of the chunk's first token. Static, or [] int32 with
      max_context.
    weights: The weights of the model.
    segments: The prompt KV to update, in the segments that the chunk reaches.
    tokens: The tokens, [B, T] int32.
    slots: The slot of each prompt, [B] int32. Rows may repeat. If the mesh
      splits the slots, the rows are in the order of `slot_parts.py`.
  """
  tokens, slots = slot_parts.split((tokens, slots))
  _, segments = _prefill(settings, start, weights, segments, tokens, slots)
  return segments


def prefill_and_insert(
  settings: state.Settings,
  start: int | jax.Array,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  slots: state.Slots,
  prompts: state.Prompts,
) -> tuple[tuple[cache.Block, ...], state.Slots]:
  """Prefills prompts, or their last chunks, and starts searches in their slots.

  The first token of each answer is chosen here.

  Args:
    settings: The static settings.
    start: The position of the first token, as in `prefill_chunk`.
    weights: The weights of the model.
    segments: The prompt KV to update, in the segments that the bucket reaches.
    slots: The state of all slots, to update.
    prompts: The batch. Its rows are ordered as in `prefill_chunk`.
  """
  prompts = slot_parts.split(prompts)
  x, segments = _prefill(
    settings,
    start,
    weights,
    segments,
    prompts.tokens,
    prompts.slots,
    prompts.lengths - 1 - start,
  )
  return segments, _start_searches(settings, weights, slots, prompts, x)


def prefill_packed(
  settings: state.Settings,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  slots: state.Slots,
  prompts: state.Prompts,
) -> tuple[tuple[cache.Block, ...], state.Slots]:
  """Prefills prompts that share one row, and starts searches in their slots.

  The arguments are those of `prefill_and_insert`, but the tokens are [1, T],
  prompt after prompt. The last prompts may be unused. Their length is 0, and
  their slot is S.
  """
  row = packing.Row.from_lengths(
    prompts.tokens.shape[1],
    prompts.lengths,
    prompts.slots,
    settings.engine.num_slots,
  )

  def keep(segments, layer: layers_lib.Index, keys: cache.KV, values: cache.KV):
    [block] = segments
    return (row.insert(block, layer, keys, values),)

  x, segments = model.prefill(
    weights,
    settings.model,
    prompts.tokens,
    settings.engine.kv_dtype,
    row.last,
    keep=keep,
    kept=segments,
    packed=row.positions,
  )
  x = x.swapaxes(0, 1)
  return segments, _start_searches(settings, weights, slots, prompts, x)


def _start_searches(
  settings: state.Settings,
  weights: weights_lib.Weights,
  slots: state.Slots,
  prompts: state.Prompts,
  x: jax.Array,
) -> state.Slots:
  """Chooses first tokens by hidden states x [B, 1, D]; returns the new slots."""
  logits = model.logits(weights, settings.model, x)
  e, rule = settings.engine, settings.rule
  steps = 1 if e.max_context else e.max_new_tokens
  first = rule.initial(prompts.options, steps)
  first, _ = rule.advance(first, logits)

  def put(local, slots, first, lengths):
    def write(old: jax.Array, new: jax.Array | int) -> jax.Array:
      at = local.index
      if local.present is not None:  # What is beyond the last is dropped.
        at = jnp.where(local.present, at, old.shape[0])
      return old.at[at].set(new)

    if e.max_context:
      searches = _write_start(slots.searches, first, local.index, write)
    else:
      searches = jax.tree.map(write, slots.searches, first)
    return state.Slots(
      searches,
      write(slots.prompt_lengths, lengths),
      tuple(write(ancestry, steps_lib.NOTHING) for ancestry in slots.ancestry),
      None if slots.moved is None else write(slots.moved, 0),
    )

  split = logical.spec('slots')
  return slot_parts.on_each(
    put,
    prompts.slots,
    settings.engine.num_slots,
    (slots, first, prompts.lengths),
    (split, split, split),
    split,
  )


def _write_start(
  old: search.State, new: search.State, slots: jax.Array, write: Callable
) -> search.State:
  """Returns searches that begin in some slots.

  Only the first step of a trace is written, because later steps are never read
  before they are written.

  Args:
    old: The searches of all slots.
    new: The new searches, with a trace of one step.
    slots: The slots of the new searches, [B] int32.
    write: The function that writes the other arrays.
  """
  nothing: Any = ()
  trace = jax.tree.map(
    lambda a, b: a.at[slots, 0].set(b[:, 0]), old.trace, new.trace
  )
  searches = jax.tree.map(
    write,
    dataclasses.replace(old, trace=nothing),
    dataclasses.replace(new, trace=nothing),
  )
  return dataclasses.replace(searches, trace=trace)


def _prefill(
  settings: state.Settings,
  start: int | jax.Array,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  tokens: jax.Array,
  slots: jax.Array,
  last: jax.Array | None = None,
) -> tuple[jax.Array, tuple[cache.Block, ...]]:
  """Returns hidden states as in `model.prefill`, and the updated segments."""

  def past(segments, layer: layers_lib.Index):
    if settings.engine.max_context:
      [block], chunk = segments, settings.engine.prefill_chunk
      return [
        attention.Earlier(block.keys, block.values, layer, slots, start, chunk)
      ]
    sources = []
    begin = 0
    for block in segments:
      end = min(block.length, start - begin)
      if end > 0:
        keys = layers_lib.at(block.keys, layer)
        keys = jax.tree.map(lambda x, end=end: x[..., :end], keys)
        values = layers_lib.at(block.values, layer)
        values = jax.tree.map(lambda x, end=end: x[:, :, :end], values)
        sources.append(
          attention.Source(
            cache.take_prompts(keys, slots),
            cache.take_prompts(values, slots),
            jnp.ones((1, 1, end), bool),
          )
        )
      begin += block.length
    return sources

  def keep(segments, layer: layers_lib.Index, keys: cache.KV, values: cache.KV):
    if settings.engine.max_context:
      [block] = segments
      return (cache.insert(block, layer, slots, start, keys, values),)
    return cache.insert_prompts(segments, layer, slots, start, keys, values)

  return model.prefill(
    weights,
    settings.model,
    tokens,
    settings.engine.kv_dtype,
    last,
    start,
    past,
    keep=keep,
    kept=segments,
  )


def hypotheses(
  settings: state.Settings,
  weights: weights_lib.Weights,
  slots: state.Slots,
  slot: jax.Array,
) -> tuple[trace.Kept, trace.Trace]:
  """Returns one slot's answers and their traces, without the leading S."""
  del settings, weights  # Called as the other programs are.
  b = slots.searches
  return jax.tree.map(lambda x: x[slot], (b.kept, b.trace))


def progress(
  settings: state.Settings,
  window: int,
  weights: weights_lib.Weights,
  slots: state.Slots,
) -> streams.Progress:
  """Returns the progress of the searches of all slots.

  Args:
    settings: The static settings.
    window: The number of newest steps to report. Static.
    weights: The weights, which are not used. Every program gets them.
    slots: The state of all slots.
  """
  del settings, weights
  return streams.progress(slots.searches, window)
