"""Defines the state of the engine's programs, and their static settings."""

import abc
from collections.abc import Callable
import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import steps as steps_lib
from saxml_ext.engine.search import beam
from saxml_ext.engine.search import pax_beam
from saxml_ext.engine.search import rule as rule_lib
from saxml_ext.engine.search import sample
from saxml_ext.engine.search import search


@dataclasses.dataclass(frozen=True)
class Settings:
  """The values for which the programs are specialized."""

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
    samples = self._samples(e.rows)
    if e.search == 'sample':
      return samples
    return rule_lib.MixedRule(e.rows, beam.BeamRule(e.rows), samples, **more)

  @property
  def rule_of_single(self) -> rule_lib.Rule:
    """The rule of a decode step in which each request has one sample."""
    return self._samples(1)

  def _samples(self, rows: int) -> sample.SampleRule:
    e = self.engine
    return sample.SampleRule(
      rows, e.max_top_k, e.any_top_k, max_logprobs=e.max_logprobs
    )

  @property
  def max_positions(self) -> int:
    return self.engine.max_length


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Slots:
  """The small part of the state, which every program rewrites.

  Attributes:
    searches: The searches of the slots' requests.
    prompt_lengths: The lengths of the prompts, [S] int32.
    ancestry: The ancestry of each suffix block, oldest first, [S, K, W]; see
      `cache.py`.
    moved: The number of steps that have moved to the prompt's segment and that
      prompt_lengths counts, [S] int32. None without max_context.
  """

  searches: search.State
  prompt_lengths: jax.Array
  ancestry: tuple[jax.Array, ...]
  moved: jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Empty:
  """The state of an engine without requests.

  Attributes:
    segments: The blocks for prompts.
    ring: The blocks for decode steps.
    slots: The slots, without requests.
  """

  segments: tuple[cache.Block, ...]
  ring: tuple[cache.Block, ...]
  slots: Slots


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prompts:
  """A batch to prefill and insert; rows may repeat to fill the batch.

  Attributes:
    tokens: The tokens, [B, T] int32, padded on the right.
    lengths: The lengths of the prompts, [B] int32.
    slots: The slots of the prompts, [B] int32.
    options: The options of the requests, with B rows.
  """

  tokens: jax.Array
  lengths: jax.Array
  slots: jax.Array
  options: search.Options


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KV:
  """The blocks that a decode call only reads.

  The block that it writes is separate, because programs donate whole arguments.

  Attributes:
    segments: The prompt KV, all segments.
    past: The suffix blocks before the current one, oldest first.
  """

  segments: tuple[cache.Block, ...]
  past: tuple[cache.Block, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
  """The slots to decode, and the end of the call.

  Attributes:
    slots: The slots, [C] int32, all different.
    active: True for those of them that hold a request, [C] bool.
    row: The first row of the current suffix block to write, [] int32.
    max_steps: The maximum number of steps, [] int32. `row + max_steps` must not
      exceed the block.
    flag: The number of an `interrupts.Flag`, [] int32. Once it is raised, the
      program ends after the current step, or after the first one.
  """

  slots: jax.Array
  active: jax.Array
  row: jax.Array
  max_steps: jax.Array
  flag: jax.Array


def empty_slots(settings: Settings) -> Slots:
  """Returns slots without requests."""
  e = settings.engine
  options = search.options_like(
    e.num_slots, e.max_stop_ids, e.max_new_tokens, e.rows
  )
  shape = (e.num_slots, e.rows, e.suffix_block)
  ancestry = jnp.full(
    shape, steps_lib.NOTHING, steps_lib.ancestry_dtype(e.rows)
  )
  return Slots(
    settings.rule.initial(options, e.max_steps),
    jnp.zeros((e.num_slots,), jnp.int32),
    tuple(ancestry + 0 for _ in range(e.num_suffix_blocks)),
    jnp.zeros((e.num_slots,), jnp.int32) if e.max_context else None,
  )


def empty(settings: Settings, stacked: bool) -> Empty:
  """Returns the state of an engine without requests."""
  e = settings.engine

  def block(length: int, suffix: bool = False) -> cache.Block:
    return cache.empty_block(
      settings.model, e.num_slots, length, e.kv_dtype, stacked, suffix
    )

  return Empty(
    tuple(map(block, e.segment_lengths)),
    tuple(
      block(e.suffix_block * e.rows, suffix=True)
      for _ in range(e.num_suffix_blocks)
    ),
    empty_slots(settings),
  )


class Program(NamedTuple):
  """A function to compile.

  Attributes:
    function: The function, which gets the weights and further arguments.
    args: The shapes of the further arguments.
    results: The shapes of the results, which are known without tracing.
    donated: The indices of the arguments that the function may overwrite. The
      weights are argument 0.
  """

  function: Callable
  args: tuple[Any, ...]
  results: Any
  donated: tuple[int, ...] = ()


@functools.lru_cache(maxsize=4)
def _empty_shapes(settings: Settings, stacked: bool) -> Empty:
  # A load needs the shapes several times, and tracing takes a tenth of its
  # time.
  return jax.eval_shape(lambda: empty(settings, stacked))


@dataclasses.dataclass(frozen=True)
class Shapes:
  """The shapes of the state, which determine the programs.

  Attributes:
    settings: The settings; static.
    stacked: True if layers and their KV are stacked.
  """

  settings: Settings
  stacked: bool

  @property
  def empty(self) -> Empty:
    """The shapes of all state."""
    return _empty_shapes(self.settings, self.stacked)

  def segments(self, end: int) -> tuple[cache.Block, ...]:
    """Returns the segments that a prompt of `end` tokens reaches."""
    return self.empty.segments[: self.settings.engine.segments_for(end)]


@dataclasses.dataclass(frozen=True, order=True)
class Key(abc.ABC):
  """A program and the parameters of its shapes.

  Attributes:
    name: The name of its function.
  """

  name: ClassVar[str]

  def __str__(self) -> str:
    """Returns the name and the values of all fields."""
    return ' '.join([self.name, *map(str, dataclasses.astuple(self))])

  @abc.abstractmethod
  def program(self, shapes: Shapes) -> Program:
    """Returns the function, and the shapes for which it is compiled."""


def int32(*shape: int) -> jax.ShapeDtypeStruct:
  """Returns the shape of an int32 array."""
  return jax.ShapeDtypeStruct(shape, jnp.int32)
