"""The device programs of the engine: admit, decode, score.

Pure functions over explicit state. `runner.py` compiles and calls them.
"""

import dataclasses

import jax
import jax.numpy as jnp

from saxml_ext.engine import beam
from saxml_ext.engine import cache
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import rotary
from saxml_ext.engine import weights as weights_lib


@dataclasses.dataclass(frozen=True)
class Settings:
  """All that the programs are specialized to."""

  model: config_lib.GPTJConfig
  engine: config_lib.EngineConfig

  @property
  def rule(self) -> beam.BeamRule:
    e = self.engine
    return beam.BeamRule(
        e.eos_id, e.num_beams, e.length_penalty, e.early_stopping
    )

  @property
  def max_positions(self) -> int:
    return self.engine.max_prompt + self.engine.max_new_tokens


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Slots:
  """The small part of the state, which every program rewrites.

  Attributes:
    beams: the searches.
    prompt_lengths: [S] int32.
    ancestry: per suffix block, oldest first, [S, K, W] int8; see `cache.py`.
  """

  beams: beam.BeamState
  prompt_lengths: jax.Array
  ancestry: tuple[jax.Array, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prompts:
  """A batch to admit. Rows may repeat, to fill up a batch.

  tokens [B, T] padded on the right; lengths, slots, min_new, max_new [B]; all
  int32.
  """

  tokens: jax.Array
  lengths: jax.Array
  slots: jax.Array
  min_new: jax.Array
  max_new: jax.Array


def empty_slots(settings: Settings) -> Slots:
  """Slots without requests."""
  e = settings.engine
  limit = jnp.full((e.num_slots,), e.max_new_tokens, jnp.int32)
  ancestry = jnp.full(
      (e.num_slots, e.num_beams, e.suffix_block), cache.NOTHING, jnp.int8
  )
  return Slots(
      beam.initial(limit * 0, limit, e.num_beams, e.max_new_tokens),
      jnp.zeros((e.num_slots,), jnp.int32),
      tuple(ancestry + 0 for _ in range(e.num_suffix_blocks)),
  )


def admit(
    settings: Settings,
    weights: weights_lib.Weights,
    segments: tuple[cache.Block, ...],
    slots: Slots,
    prompts: Prompts,
) -> tuple[tuple[cache.Block, ...], Slots]:
  """Prefills prompts into their slots and chooses the first tokens.

  Args:
    settings: static.
    weights: the model.
    segments: prompt KV, as many segments as the bucket reaches; updated.
    slots: all slots; updated.
    prompts: the batch.
  """
  e = settings.engine

  def keep(layer: int, keys: jax.Array, values: jax.Array) -> None:
    nonlocal segments
    segments = cache.insert_prompts(
        segments, layer, prompts.slots, keys, values
    )

  x = model.prefill(
      weights, settings.model, prompts.tokens, prompts.lengths, keep
  )
  logits = model.logits(weights, settings.model, x)
  logits = jnp.broadcast_to(
      logits, (logits.shape[0], e.num_beams, logits.shape[2])
  )
  first = beam.initial(
      prompts.min_new, prompts.max_new, e.num_beams, e.max_new_tokens
  )
  first, _ = beam.advance(settings.rule, first, logits)

  def put(old: jax.Array, new: jax.Array | int) -> jax.Array:
    return old.at[prompts.slots].set(new)

  return segments, Slots(
      jax.tree.map(put, slots.beams, first),
      put(slots.prompt_lengths, prompts.lengths),
      tuple(put(ancestry, cache.NOTHING) for ancestry in slots.ancestry),
  )


def decode(
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
  """Decodes until enough slots have finished, at most `max_steps` steps.

  Args:
    settings: static.
    weights: the model.
    segments: prompt KV, all segments.
    past: the suffix blocks before `current`, oldest first.
    current: the suffix block that is written.
    slots: all slots.
    active: [S] bool, slots that hold a request.
    row: where in `current` to begin.
    max_steps: `row + max_steps` must not exceed the block.

  Returns:
    `current` and `slots` after the steps, and the number of steps, [] int32.
  """
  e = settings.engine
  rotations = tuple(
      jnp.asarray(t)
      for t in rotary.table(settings.max_positions, settings.model.rotary_dim)
  )
  reach = jnp.where(active, slots.prompt_lengths, 0)
  prompts = []
  for start, block in zip((0, *e.segments), segments):
    within = jnp.arange(start, start + block.length) < reach[:, None]
    prompts.append(model.Past(block, within[:, None], (reach > start).any()))
  enough = min(e.exit_finished, e.num_slots)

  def unfinished(carry) -> jax.Array:
    step, _, slots = carry
    done = active & slots.beams.finished
    return (
        (step < max_steps)
        & (done.sum() < enough)
        & (active & ~slots.beams.finished).any()
    )

  def body(carry):
    step, current, slots = carry
    beams = slots.beams
    ancestry = list(slots.ancestry)
    ancestry[-1] = cache.claim_row(ancestry[-1], row + step)
    masks = [cache.visible(a) for a in ancestry]
    suffixes = [
        model.Past(block, mask, (mask & active[:, None, None]).any())
        for block, mask in zip(past, masks)
    ]
    last = jnp.clip(beams.step - 1, 0)
    logits, current = model.decode(
        weights,
        settings.model,
        jnp.take_along_axis(beams.tokens, last[:, None, None], 2)[:, :, 0],
        slots.prompt_lengths + last,
        rotations,
        prompts + suffixes,
        current,
        masks[-1],
        row + step,
    )
    advanced, parents = beam.advance(settings.rule, beams, logits)
    live = active & ~beams.finished
    slots = Slots(
        beam.freeze(live, advanced, beams),
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
  x = model.prefill(weights, settings.model, tokens[None])
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
  b = slots.beams
  return (
      b.kept_tokens[slot],
      b.kept_lengths[slot],
      b.kept_scores[slot],
      b.kept[slot],
  )
