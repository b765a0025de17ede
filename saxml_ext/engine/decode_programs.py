"""Defines the device programs of decode steps.

They are pure functions of explicit state, as those of `programs.py`.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from saxml_ext.engine import logical
from saxml_ext.engine import model
from saxml_ext.engine import rotary
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.attention import steps as steps_lib
from saxml_ext.engine.kernels import interrupts
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import rule as rule_lib
from saxml_ext.engine.search import search


def decode(
  settings: state.Settings,
  weights: weights_lib.Weights,
  kv: state.KV,
  current: cache.Block,
  slots: state.Slots,
  batch: state.Batch,
) -> tuple[cache.Block, state.Slots, jax.Array, jax.Array]:
  """Decodes until enough slots have finished, at most `max_steps` steps.

  Without a kernel that reads the KV in place, few slots are gathered first and
  scattered at the end, at the cost of several steps.

  Args:
    settings: The static settings.
    weights: The weights of the model.
    kv: The blocks to read.
    current: The suffix block to write.
    slots: The state of all slots.
    batch: The slots to decode, including all that hold a request.

  Returns:
    `current` and `slots` after the steps, the number of steps, [] int32, and
    the slots that have finished, [S] bool. `slots` has the finished slots too,
    but there each device has only its own.
  """
  run = functools.partial(_decode, settings, settings.rule, weights)
  chosen = batch.slots

  def decode_chosen(kv: state.KV, current, slots, indices=None):
    few = jax.tree.map(lambda x: x[chosen], slots)
    current, few, steps = run(kv, current, few, batch, indices)
    slots = jax.tree.map(lambda old, x: old.at[chosen].set(x), slots, few)
    return current, slots, steps

  def decode_gathered(kv: state.KV, current, slots):
    own = state.KV(
      tuple(cache.gather(block, chosen) for block in kv.segments),
      tuple(cache.gather(block, chosen) for block in kv.past),
    )
    few, slots, steps = decode_chosen(own, cache.gather(current, chosen), slots)
    return cache.scatter(current, chosen, few), slots, steps

  def in_place(kv: state.KV, current, slots):
    if logical.parts('slots') == 1:
      return decode_chosen(kv, current, slots, chosen)
    # Each device must have the same number of chosen slots. Idle slots cost
    # only their rows of the matrix products.
    active = jnp.zeros(settings.engine.num_slots, bool)
    active = active.at[chosen].set(batch.active)
    return run(kv, current, slots, dataclasses.replace(batch, active=active))

  by_platform = decode_attention.chooser(
    kv.segments,
    kv.past,
    current.length,
    settings.model.architecture.attention_cap,
  )
  if chosen.shape[0] == settings.engine.num_slots:
    current, slots, steps = run(kv, current, slots, batch)
  elif by_platform is None:
    current, slots, steps = decode_gathered(kv, current, slots)
  else:
    current, slots, steps = by_platform(
      in_place, decode_gathered, kv, current, slots
    )
  return current, slots, steps, slots.searches.finished


def decode_in_place(
  settings: state.Settings,
  rows: int,
  weights: weights_lib.Weights,
  kv: state.KV,
  current: cache.Block,
  slots: state.Slots,
  batch: state.Batch,
) -> tuple[cache.Block, state.Slots, jax.Array, jax.Array]:
  """Decodes as `decode` does, with max_context.

  The chosen slots are read and written in place, except for their small state.

  Args:
    settings: The static settings.
    rows: The number of rows to decode, 1 or K. With 1, each request has one
      sample. Static.
    weights: The weights of the model.
    kv: The prompt KV, one segment.
    current: The only suffix block.
    slots: The state of all slots.
    batch: The slots to decode.
  """
  whole = rows == settings.rule.num_rows
  rule = settings.rule if whole else settings.rule_of_single
  searches = slots.searches

  def index(has_rows: bool):
    return (batch.slots, slice(rows)) if has_rows else batch.slots

  def take(tree, has_rows: bool):
    at = index(has_rows)
    return jax.tree.map(lambda x: x[at], tree)

  def put(old, new, has_rows: bool):
    at = index(has_rows)
    return jax.tree.map(lambda x, y: x.at[at].set(y), old, new)

  def map_searches(change, *trees: search.State) -> search.State:
    def field(name: str, has_rows: bool):
      return change(*[getattr(tree, name) for tree in trees], has_rows)

    by_row = ('last', 'scores', 'ended', 'kept')
    by_slot = ('options', 'step', 'finished')
    return search.State(
      trace=trees[-1].trace,  # It is written in place.
      **{name: field(name, True) for name in by_row},
      **{name: field(name, False) for name in by_slot},
    )

  lengths = take((slots.prompt_lengths, slots.moved), False)
  chosen = state.Slots(
    map_searches(take, searches),
    lengths[0],
    take(slots.ancestry, True),
    lengths[1],
  )
  current, new, steps = _decode(
    settings, rule, weights, kv, current, chosen, batch, batch.slots
  )
  slots = dataclasses.replace(
    slots,
    searches=map_searches(put, searches, new.searches),
    ancestry=put(slots.ancestry, new.ancestry, True),
  )
  return current, slots, steps, slots.searches.finished


def move_steps(
  settings: state.Settings,
  weights: weights_lib.Weights,
  segments: tuple[cache.Block, ...],
  ring: cache.Block,
  slots: state.Slots,
  slot: jax.Array,
) -> tuple[tuple[cache.Block, ...], state.Slots]:
  """Moves the steps of a request with one row to the segment of its prompt.

  The last row of the ring has been written, so that its rows can be written
  again.

  Args:
    settings: The static settings.
    weights: The weights, which are not used. Every program gets them.
    segments: The prompt KV, one segment, to update.
    ring: The only suffix block.
    slots: The state of all slots, to update.
    slot: The slot of the request, [] int32.
  """
  del weights
  [segment], [ancestry] = segments, slots.ancestry
  steps = settings.engine.suffix_block
  count = (ancestry[slot, 0] != steps_lib.NOTHING).sum(dtype=jnp.int32)
  end = slots.prompt_lengths[slot]
  segment = steps_lib.move_steps(segment, ring, slot, steps - count, steps, end)
  assert slots.moved is not None
  return (segment,), dataclasses.replace(
    slots,
    prompt_lengths=slots.prompt_lengths.at[slot].add(count),
    moved=slots.moved.at[slot].add(count),
    ancestry=(ancestry.at[slot].set(steps_lib.NOTHING),),
  )


def _decode(
  settings: state.Settings,
  rule: rule_lib.Rule,
  weights: weights_lib.Weights,
  kv: state.KV,
  current: cache.Block,
  slots: state.Slots,
  batch: state.Batch,
  indices: jax.Array | None = None,
) -> tuple[cache.Block, state.Slots, jax.Array]:
  """Decodes the given slots by a rule; see `decode`.

  Their KV is at `indices` [C] int32 of the blocks. None means that the blocks
  hold no other slots.
  """
  e, model_config = settings.engine, settings.model
  row, active = batch.row, batch.active
  rotations = None
  if not e.max_context:
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
      (step < batch.max_steps)
      & ((step == 0) | ~interrupts.is_raised(batch.flag, step))
      & (done.sum() < enough)
      & (active & ~slots.searches.finished).any()
    )

  def body(carry):
    step, current, slots = carry
    searches, lengths = slots.searches, slots.prompt_lengths
    ancestry = list(slots.ancestry)
    ancestry[-1] = steps_lib.claim_row(
      ancestry[-1], row + step, wraps=not kv.past
    )
    live = active & ~searches.finished
    history = decode_attention.History(
      jnp.where(live, lengths, -1), kv.segments, kv.past, ancestry, indices
    )
    begun = lengths if slots.moved is None else lengths - slots.moved
    head, current = model.decode(
      weights,
      model_config,
      searches.last,
      begun + jnp.clip(searches.step - 1, 0),
      rotations,
      history,
      current,
      row + step,
      e.kv_dtype,
    )
    advanced, parents = _advance(
      settings, rule, searches, head, live, indices if e.max_context else None
    )
    slots = state.Slots(
      search.freeze(live, advanced, searches),
      lengths,
      tuple(steps_lib.inherit(a, parents) for a in ancestry),
      slots.moved,
    )
    return step + 1, current, slots

  steps, current, slots = jax.lax.while_loop(
    unfinished, body, (jnp.int32(0), current, slots)
  )
  return current, slots, steps


def _advance(
  settings: state.Settings,
  rule: rule_lib.Rule,
  searches: search.State,
  head: search.Head,
  live: jax.Array,
  slots: jax.Array | None,
) -> tuple[search.State, jax.Array]:
  """Adds one token to every row, as `rule.advance` does.

  The logits are not written if the rule needs only the likeliest tokens.
  """
  known = rule.known_tokens(settings.engine.max_stop_ids)
  find = head.find

  def by_logits(searches: search.State):
    return rule.advance(searches, head.logits(), live, slots)

  if known is None or find is None:
    return by_logits(searches)
  count = min(known, head.shape[-1])

  def by_kernel(searches: search.State):
    few = dataclasses.replace(head, best=find(count))
    return rule.advance(searches, few, live, slots)

  return kernels.choose(by_kernel, by_logits, searches)
