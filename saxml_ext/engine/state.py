"""What the engine's programs carry from call to call, and are specialized to."""

import dataclasses

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.search import beam
from saxml_ext.engine.search import mixed
from saxml_ext.engine.search import pax_beam
from saxml_ext.engine.search import rule as rule_lib
from saxml_ext.engine.search import sample
from saxml_ext.engine.search import search


@dataclasses.dataclass(frozen=True)
class Settings:
  """All that the programs are specialized to."""

  model: config_lib.ModelConfig
  engine: config_lib.EngineConfig

  @property
  def rule(self) -> rule_lib.Rule:
    e = self.engine
    more = {'max_logprobs': e.max_logprobs}
    if e.search == 'pax':
      return pax_beam.PaxRule(e.rows, e.tokens_per_beam, e.early_exit, **more)
    if e.search == 'beam':
      return beam.BeamRule(e.rows, **more)
    samples = sample.SampleRule(e.rows, e.max_top_k, **more)
    if e.search == 'sample':
      return samples
    return mixed.MixedRule(e.rows, beam.BeamRule(e.rows), samples, **more)

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
    ancestry: per suffix block, oldest first, [S, K, W]; see `cache.py`.
  """

  searches: search.State
  prompt_lengths: jax.Array
  ancestry: tuple[jax.Array, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Empty:
  """All state of an engine that has no request yet.

  Attributes:
    segments: the blocks for prompts.
    ring: the blocks for decode steps.
    slots: without requests.
  """

  segments: tuple[cache.Block, ...]
  ring: tuple[cache.Block, ...]
  slots: Slots


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prompts:
  """A batch to prefill and insert. Rows may repeat, to fill up a batch.

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
  options = search.options_like(
    e.num_slots, e.max_stop_ids, e.max_new_tokens, e.rows
  )
  shape = (e.num_slots, e.rows, e.suffix_block)
  ancestry = jnp.full(shape, cache.NOTHING, cache.ancestry_dtype(e.rows))
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
  length = e.suffix_block * e.rows
  return cache.empty_block(
    settings.model, e.num_slots, length, e.kv_dtype, stacked, suffix=True
  )


def empty(settings: Settings, stacked: bool) -> Empty:
  """State of an engine that has no request yet."""
  e = settings.engine
  return Empty(
    tuple(
      empty_segment(settings, index, stacked)
      for index in range(len(e.segments))
    ),
    tuple(empty_suffix(settings, stacked) for _ in range(e.num_suffix_blocks)),
    empty_slots(settings),
  )
