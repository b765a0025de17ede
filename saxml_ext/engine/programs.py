"""The device programs of the engine: admit, decode, score.

Pure functions over explicit state. `runner.py` compiles and calls them.
"""

import dataclasses

import jax
import jax.numpy as jnp

from saxml_ext.engine import attention
from saxml_ext.engine import beam
from saxml_ext.engine import cache
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import decode_attention
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import model
from saxml_ext.engine import pax_beam
from saxml_ext.engine import rotary
from saxml_ext.engine import sample
from saxml_ext.engine import search
from saxml_ext.engine import weights as weights_lib


@dataclasses.dataclass(frozen=True)
class Settings:
  """All that the programs are specialized to."""

  model: config_lib.GPTJConfig
  engine: config_lib.EngineConfig

  @property
  def rule(self) -> search.Rule:
    e = self.engine
    if e.search == "sample":
      return sample.SampleRule(e.num_beams, e.max_top_k)
    if e.search == "pax":
      return pax_beam.PaxRule(
          e.num_beams, e.length_norm_alpha, e.tokens_per_beam, e.early_exit
      )
    return beam.BeamRule(e.num_beams, e.length_penalty, e.early_stopping)

  @property
  def max_positions(self) -> int:
    return self.engine.max_prompt + self.engine.max_new_tokens


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Slots:
  """The small part of the state, which every program rewrites.

  Attributes:
    searches: of the slots' requests.
    prompt_lengths: [S] int32.
    ancestry: per suffix block, oldest first, [S, K, W] int8; see `cache.py`.
  """

  searches: search.State
  prompt_lengths: jax.Array
  ancestry: tuple[jax.Array, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prompts:
  """A batch to admit. Rows may repeat, to fill up a batch.

  tokens [B, T] padded on the right, lengths and slots [B], all int32; options
  with B rows.
  """

  tokens: jax.Array
  lengths: jax.Array
  slots: jax.Array
  options: search.Options


def empty_slots(settings: Settings) -> Slots:
  """Slots without requests."""
  e = settings.engine
  options = search.options_like(e.num_slots, e.max_stop_ids, e.max_new_tokens)
  ancestry = jnp.full(
      (e.num_slots, e.num_beams, e.suffix_block), cache.NOTHING, jnp.int8
  )
  return Slots(
      settings.rule.initial(options, e.max_new_tokens),
      jnp.zeros((e.num_slots,), jnp.int32),
      tuple(ancestry + 0 for _ in range(e.num_suffix_blocks)),
  )


def empty_segment(settings: Settings, index: int, stacked: bool) -> cache.Block:
  """One of the blocks for prompts."""
  e = settings.engine
  length = e.segment_lengths[index]
  return cache.empty_block(
      settings.model, e.num_slots, length, e.kv_dtype, stacked
  )


def empty_suffix(settings: Settings, stacked: bool) -> cache.Block:
  """One of the blocks for decode steps."""
  e = settings.engine
  length = e.suffix_block * e.num_beams
  return cache.empty_block(
      settings.model, e.num_slots, length, e.kv_dtype, stacked, suffix=True
  )


def extend(
    settings: Settings,
    start: int,
    weights: weights_lib.Weights,
    segments: tuple[cache.Block, ...],
    tokens: jax.Array,
    slots: jax.Array,
) -> tuple[cache.Block, ...]:
  """Prefills a chunk of prompts that is not their last.

  Args:
    settings: static.
    start: static, position of the chunk's first token.
    weights: the model.
    segments: prompt KV, as many segments as the chunk reaches; updated.
    tokens: [B, T] int32.
    slots: [B] int32, where the prompts are. Rows may repeat.
  """
  _, segments = _prefill(settings, start, weights, segments, tokens, slots)
  return segments


def admit(
    settings: Settings,
    start: int,
    weights: weights_lib.Weights,
    segments: tuple[cache.Block, ...],
    slots: Slots,
    prompts: Prompts,
) -> tuple[tuple[cache.Block, ...], Slots]:
  """Prefills prompts, or their last chunks, and chooses the first tokens.

  Args:
    settings: static.
    start: static, position of the first token.
    weights: the model.
    segments: prompt KV, as many segments as the bucket reaches; updated.
    slots: all slots; updated.
    prompts: the batch.
  """
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

  def put(old: jax.Array, new: jax.Array | int) -> jax.Array:
    return old.at[prompts.slots].set(new)

  return segments, Slots(
      jax.tree.map(put, slots.searches, first),
      put(slots.prompt_lengths, prompts.lengths),
      tuple(put(ancestry, cache.NOTHING) for ancestry in slots.ancestry),
  )


def _prefill(
    settings: Settings,
    start: int,
    weights: weights_lib.Weights,
    segments: tuple[cache.Block, ...],
    tokens: jax.Array,
    slots: jax.Array,
    last: jax.Array | None = None,
) -> tuple[jax.Array, tuple[cache.Block, ...]]:
  """Hidden states as of `model.prefill`, and the segments with the KV."""

  def past(segments, layer: layers_lib.Index) -> list[attention.Source]:
    sources = []
    begin = 0
    for block in segments:
      if begin < start:
        seen = jnp.arange(begin, begin + block.length) < start
        sources.append(
            attention.Source(
                cache.of_slots(layers_lib.at(block.keys, layer), slots),
                cache.of_slots(layers_lib.at(block.values, layer), slots),
                seen[None, None],
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
      keep,
      segments,
  )


def decode(
    settings: Settings,
    weights: weights_lib.Weights,
    segments: tuple[cache.Block, ...],
    past: tuple[cache.Block, ...],
    current: cache.Block,
    slots: Slots,
    chosen: jax.Array,
    active: jax.Array,
    row: jax.Array,
    max_steps: jax.Array,
) -> tuple[cache.Block, Slots, jax.Array]:
  """Decodes until enough slots have finished, at most `max_steps` steps.

  Args:
    settings: static.
    weights: the model.
    segments: prompt KV, all segments.
    past: the suffix blocks before `current`, oldest first.
    current: the suffix block that is written.
    slots: all slots.
    chosen: [C] int32, different slots, with all that hold a request. Unless
      they are all of the slots, they are gathered first and put back in the
      end: that costs about one step.
    active: [C] bool, those of them that hold a request.
    row: where in `current` to begin.
    max_steps: `row + max_steps` must not exceed the block.

  Returns:
    `current` and `slots` after the steps, and the number of steps, [] int32.
  """
  if chosen.shape[0] == settings.engine.num_slots:
    return _decode(
        settings,
        weights,
        segments,
        past,
        current,
        slots,
        active,
        row,
        max_steps,
    )

  new_current, new_slots, steps = _decode(
      settings,
      weights,
      tuple(cache.gather(block, chosen) for block in segments),
      tuple(cache.gather(block, chosen) for block in past),
      cache.gather(current, chosen),
      jax.tree.map(lambda x: x[chosen], slots),
      active,
      row,
      max_steps,
  )
  current = cache.scatter(current, chosen, new_current)
  slots = jax.tree.map(
      lambda old, new: old.at[chosen].set(new), slots, new_slots
  )
  return current, slots, steps


def _decode(
    settings: Settings,
    weights: weights_lib.Weights,
    segments: tuple[cache.Block, ...],
    past: tuple[cache.Block, ...],
    current: cache.Block,
    slots: Slots,
    active: jax.Array,
    row: jax.Array,
    max_steps: jax.Array,
) -> tuple[cache.Block, Slots, jax.Array]:
  """As `decode`, of the slots that are given."""
  e = settings.engine
  rotations = tuple(
      jnp.asarray(t)
      for t in rotary.table(settings.max_positions, settings.model.rotary_dim)
  )
  enough = min(e.exit_finished, active.shape[0])

  def unfinished(carry) -> jax.Array:
    step, _, slots = carry
    done = active & slots.searches.finished
    return (
        (step < max_steps)
        & (done.sum() < enough)
        & (active & ~slots.searches.finished).any()
    )

  def body(carry):
    step, current, slots = carry
    searches = slots.searches
    ancestry = list(slots.ancestry)
    ancestry[-1] = cache.claim_row(ancestry[-1], row + step)
    live = active & ~searches.finished
    history = decode_attention.History(
        jnp.where(live, slots.prompt_lengths, -1), segments, past, ancestry
    )
    last = jnp.clip(searches.step - 1, 0)
    logits, current = model.decode(
        weights,
        settings.model,
        jnp.take_along_axis(searches.tokens, last[:, None, None], 2)[:, :, 0],
        slots.prompt_lengths + last,
        rotations,
        history,
        current,
        row + step,
        e.kv_dtype,
    )
    advanced, parents = settings.rule.advance(searches, logits)
    slots = Slots(
        search.freeze(live, advanced, searches),
        slots.prompt_lengths,
        tuple(cache.inherit(a, parents) for a in ancestry),
    )
    return step + 1, current, slots

  steps, current, slots = jax.lax.while_loop(
      unfinished, body, (jnp.int32(0), current, slots)
  )
  return current, slots, steps


def score(
    settings: Settings,
    weights: weights_lib.Weights,
    tokens: jax.Array,
    start: jax.Array,
    end: jax.Array,
) -> jax.Array:
  """Sum of log p(tokens[i] | tokens[:i]) for start <= i < end; [] float32.

  Args:
    settings: static.
    weights: the model.
    tokens: [T] int32, padded on the right.
    start: at least 1.
    end: at most T.
  """
  kv_dtype = settings.engine.kv_dtype
  x, _ = model.prefill(weights, settings.model, tokens[None], kv_dtype)
  logits = model.logits(weights, settings.model, x[0, :-1])
  log_probs = jax.nn.log_softmax(logits)
  chosen = jnp.take_along_axis(log_probs, tokens[1:, None], 1)[:, 0]
  index = jnp.arange(1, tokens.shape[0])
  return jnp.where((index >= start) & (index < end), chosen, 0).sum()


def hypotheses(
    settings: Settings,
    weights: weights_lib.Weights,
    slots: Slots,
    slot: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """One slot's kept tokens [K, M], lengths [K], scores [K] and kept [K]."""
  del settings, weights  # Called as the other programs are.
  b = slots.searches
  return (
      b.kept_tokens[slot],
      b.kept_lengths[slot],
      b.kept_scores[slot],
      b.kept[slot],
  )
