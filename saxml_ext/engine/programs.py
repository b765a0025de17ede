"""Defines the device programs of the engine: prefill, decode, score.

They are pure functions of explicit state. `executables.py` compiles them, and
`runner.py` calls them.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine import model
from saxml_ext.engine import rotary
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import search
from saxml_ext.engine.search import streams
from saxml_ext.engine.search import trace

# The prompts' segments, the suffix blocks before the current one, and the
# current one.
_KV = tuple[tuple[cache.Block, ...], tuple[cache.Block, ...], cache.Block]


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
  # The copies are separate, because a buffer that occurs twice cannot be
  # donated.
  return jax.tree.map(jnp.copy, state.empty(settings, stacked))


def prefill_chunk(
  settings: state.Settings,
  start: int,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  tokens: jax.Array,
  slots: jax.Array,
) -> tuple[cache.Block, ...]:
  """Prefills a chunk of prompts that is not their last.

  Args:
    settings: The static settings.
    start: The position of the chunk's first token. Static.
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
  start: int,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  slots: state.Slots,
  prompts: state.Prompts,
) -> tuple[tuple[cache.Block, ...], state.Slots]:
  """Prefills prompts, or their last chunks, and starts searches in their slots.

  The first token of each answer is chosen here.

  Args:
    settings: The static settings.
    start: The position of the first token. Static.
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
  logits = model.logits(weights, settings.model, x)
  rule = settings.rule
  first = rule.initial(prompts.options, settings.engine.max_new_tokens)
  first, _ = rule.advance(first, logits)

  def put(places, slots, first, lengths):
    def write(old: jax.Array, new: jax.Array | int) -> jax.Array:
      at = places.index
      if places.here is not None:  # What is beyond the last is dropped.
        at = jnp.where(places.here, at, old.shape[0])
      return old.at[at].set(new)

    return state.Slots(
      jax.tree.map(write, slots.searches, first),
      write(slots.prompt_lengths, lengths),
      tuple(write(ancestry, cache.NOTHING) for ancestry in slots.ancestry),
    )

  split = logical.spec('slots')
  return segments, slot_parts.on_each(
    put,
    prompts.slots,
    settings.engine.num_slots,
    (slots, first, prompts.lengths),
    (split, split, split),
    split,
  )


def _prefill(
  settings: state.Settings,
  start: int,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  tokens: jax.Array,
  slots: jax.Array,
  last: jax.Array | None = None,
) -> tuple[jax.Array, tuple[cache.Block, ...]]:
  """Returns hidden states as in `model.prefill`, and the updated segments."""

  def past(segments, layer: layers_lib.Index) -> list[attention.Source]:
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
            cache.of_prompts(keys, slots),
            cache.of_prompts(values, slots),
            jnp.ones((1, 1, end), bool),
          )
        )
      begin += block.length
    return sources

  def keep(segments, layer: layers_lib.Index, keys: cache.KV, values: cache.KV):
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


def decode(
  settings: state.Settings,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  past: tuple[cache.Block, ...],
  current: cache.Block,
  slots: state.Slots,
  chosen: jax.Array,
  active: jax.Array,
  row: jax.Array,
  max_steps: jax.Array,
  flag: jax.Array,
) -> tuple[cache.Block, state.Slots, jax.Array, jax.Array]:
  """Decodes until enough slots have finished, at most `max_steps` steps.

  Args:
    settings: The static settings.
    weights: The weights of the model.
    segments: The prompt KV, all segments.
    past: The suffix blocks before `current`, oldest first.
    current: The suffix block to write.
    slots: The state of all slots.
    chosen: The different slots to decode, [C] int32, including all that hold a
      request. Without a kernel that reads the KV in place, few slots are
      gathered first and scattered at the end, at the cost of several steps.
    active: True for those of them that hold a request, [C] bool.
    row: The first row of `current` to write.
    max_steps: The maximum number of steps. `row + max_steps` must not exceed
      the block.
    flag: The number of a `kernels.Flag`, [] int32. Once it is raised, the
      program ends after the current step, or after the first one.

  Returns:
    `current` and `slots` after the steps, the number of steps, [] int32, and
    the slots that have finished, [S] bool. `slots` has the finished slots too,
    but there each device has only its own.
  """
  run = functools.partial(_decode, settings, weights, row, max_steps, flag)
  kv = segments, past, current

  def of_chosen(kv: _KV, slots, places=None):
    few = jax.tree.map(lambda x: x[chosen], slots)
    current, few, steps = run(kv, few, active, places)
    slots = jax.tree.map(lambda old, x: old.at[chosen].set(x), slots, few)
    return current, slots, steps

  def gathered(kv: _KV, slots):
    segments, past, current = kv
    own = (
      tuple(cache.gather(block, chosen) for block in segments),
      tuple(cache.gather(block, chosen) for block in past),
      cache.gather(current, chosen),
    )
    few, slots, steps = of_chosen(own, slots)
    return cache.scatter(current, chosen, few), slots, steps

  def in_place(kv: _KV, slots):
    if logical.parts('slots') == 1:
      return of_chosen(kv, slots, chosen)
    # Each device must have the same number of chosen slots. Idle slots cost
    # only their rows of the matrix products.
    of_all = jnp.zeros(settings.engine.num_slots, bool).at[chosen].set(active)
    return run(kv, slots, of_all)

  by_platform = decode_attention.chooser(
    segments, past, current.length, settings.model.architecture.attention_cap
  )
  if chosen.shape[0] == settings.engine.num_slots:
    current, slots, steps = run(kv, slots, active)
  elif by_platform is None:
    current, slots, steps = gathered(kv, slots)
  else:
    current, slots, steps = by_platform(in_place, gathered, kv, slots)
  return current, slots, steps, slots.searches.finished


def _decode(
  settings: state.Settings,
  weights: weights_lib.Weights,
  row: jax.Array,
  max_steps: jax.Array,
  flag: jax.Array,
  kv: _KV,
  slots: state.Slots,
  active: jax.Array,
  places: jax.Array | None = None,
) -> tuple[cache.Block, state.Slots, jax.Array]:
  """Decodes the given slots; see `decode`.

  Their KV is at `places` [C] int32 of the blocks. None means that the blocks
  hold no other slots.
  """
  e, model_config = settings.engine, settings.model
  segments, past, current = kv
  rotations = rotary.table(
    settings.max_positions,
    model_config.rotary_dim,
    model_config.rotary_base,
    model_config.rotary_scaling,
  )
  rotations = tuple(map(jnp.asarray, rotations))
  enough = min(e.exit_finished, active.shape[0])

  def unfinished(carry) -> jax.Array:
    step, _, slots = carry
    done = active & slots.searches.finished
    return (
      (step < max_steps)
      & ((step == 0) | ~kernels.is_raised(flag, step))
      & (done.sum() < enough)
      & (active & ~slots.searches.finished).any()
    )

  def body(carry):
    step, current, slots = carry
    searches, lengths = slots.searches, slots.prompt_lengths
    ancestry = list(slots.ancestry)
    ancestry[-1] = cache.claim_row(ancestry[-1], row + step, wraps=not past)
    live = active & ~searches.finished
    history = decode_attention.History(
      jnp.where(live, lengths, -1), segments, past, ancestry, places
    )
    head, current = model.decode(
      weights,
      model_config,
      searches.last,
      lengths + jnp.clip(searches.step - 1, 0),
      rotations,
      history,
      current,
      row + step,
      e.kv_dtype,
    )
    advanced, parents = _advance(settings, searches, head, live)
    slots = state.Slots(
      search.freeze(live, advanced, searches),
      lengths,
      tuple(cache.inherit(a, parents) for a in ancestry),
    )
    return step + 1, current, slots

  steps, current, slots = jax.lax.while_loop(
    unfinished, body, (jnp.int32(0), current, slots)
  )
  return current, slots, steps


def _advance(
  settings: state.Settings,
  searches: search.State,
  head: search.Head,
  live: jax.Array,
) -> tuple[search.State, jax.Array]:
  """Adds one token to every row, as `rule.Rule.advance` does.

  The logits are not written if the rule needs only the likeliest tokens.
  """
  rule = settings.rule
  known = rule.known_tokens(settings.engine.max_stop_ids)
  find = head.find

  def by_logits(searches: search.State):
    return rule.advance(searches, head.logits(), live)

  if known is None or find is None:
    return by_logits(searches)
  count = min(known, head.shape[-1])

  def by_kernel(searches: search.State):
    few = dataclasses.replace(head, best=find(count))
    return rule.advance(searches, few, live)

  return kernels.choose(by_kernel, by_logits, searches)


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
) -> streams.News:
  """Returns the progress of the searches of all slots.

  Args:
    settings: The static settings.
    window: The number of newest steps to report. Static.
    weights: The weights, which are not used. Every program gets them.
    slots: The state of all slots.
  """
  del settings, weights
  return streams.news(slots.searches, window)
