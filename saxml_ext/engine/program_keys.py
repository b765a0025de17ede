"""Defines the engine's programs by key: functions, arguments and results."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import decode_programs
from saxml_ext.engine import programs
from saxml_ext.engine import state
from saxml_ext.engine.search import search
from saxml_ext.engine.search import streams

# The maximum number of prompts in a row. A row of 2,048 tokens then has 128 for
# each. The first tokens are chosen for all of them, also for unused ones.
_MOST_PACKED = 16


@dataclasses.dataclass(frozen=True, order=True)
class EmptyState(state.Key):
  """The program `programs.empty_state`, which creates the first state."""

  name = 'empty_state'

  def program(self, shapes: state.Shapes) -> state.Program:
    function = functools.partial(
      programs.empty_state, shapes.settings, shapes.stacked
    )
    return state.Program(function, (), shapes.empty)


@dataclasses.dataclass(frozen=True, order=True)
class PrefillAndInsert(state.Key):
  """The program `programs.prefill_and_insert` for a batch of prompts.

  It prefills `rows` prompts from position `start` to `end`. With max_context,
  `start` is 0, and the program's last argument is added to both.
  """

  name = 'prefill_and_insert'
  rows: int
  start: int
  end: int

  def program(self, shapes: state.Shapes) -> state.Program:
    tokens = state.int32(self.rows, self.end - self.start)
    kept = shapes.segments(self.end), shapes.empty.slots
    function, *start = _from(
      programs.prefill_and_insert, shapes.settings, self.start
    )
    args = (*kept, _prompts(shapes.settings, self.rows, tokens), *start)
    return state.Program(function, args, kept, donated=(1, 2))


@dataclasses.dataclass(frozen=True, order=True)
class PrefillPacked(state.Key):
  """The program `programs.prefill_packed`.

  It prefills up to `prompts` prompts with `tokens` tokens in all.
  """

  name = 'prefill_packed'
  prompts: int
  tokens: int
  end = 1  # The prompts' KV has one segment.

  def program(self, shapes: state.Shapes) -> state.Program:
    s, tokens = shapes.settings, state.int32(1, self.tokens)
    kept = shapes.empty.segments, shapes.empty.slots
    return state.Program(
      functools.partial(programs.prefill_packed, s),
      (*kept, _prompts(s, self.prompts, tokens)),
      kept,
      donated=(1, 2),
    )


def packs(engine: config_lib.EngineConfig) -> list[PrefillPacked]:
  """Returns the programs that prefill several prompts in a row, ascending.

  The shorter row is for few prompts, which would leave most of the other empty.
  """
  prompts, most = min(engine.num_slots, _MOST_PACKED), engine.prefill_tokens
  return [PrefillPacked(prompts, n) for n in (most // 4, most) if n]


def _prompts(
  settings: state.Settings, rows: int, tokens: jax.ShapeDtypeStruct
) -> state.Prompts:
  """Returns the shapes of a batch of prompts."""
  e, per_row = settings.engine, state.int32(rows)
  options = jax.eval_shape(
    lambda: search.options_like(rows, e.max_stop_ids, e.max_new_tokens)
  )
  return state.Prompts(tokens, per_row, per_row, options)


@dataclasses.dataclass(frozen=True, order=True)
class PrefillChunk(state.Key):
  """The program `programs.prefill_chunk` for a batch of prompts.

  It prefills `rows` prompts from position `start` to `end`, as in
  `PrefillAndInsert`.
  """

  name = 'prefill_chunk'
  rows: int
  start: int
  end: int

  def program(self, shapes: state.Shapes) -> state.Program:
    tokens = state.int32(self.rows, self.end - self.start)
    segments = shapes.segments(self.end)
    function, *start = _from(
      programs.prefill_chunk, shapes.settings, self.start
    )
    args = (segments, tokens, state.int32(self.rows), *start)
    return state.Program(function, args, segments, donated=(1,))


def _from(
  prefill: Callable, settings: state.Settings, start: int
) -> tuple[Any, ...]:
  """Returns a function that prefills from `start` on.

  With max_context, the start is its last argument, whose shape follows.
  """
  if not settings.engine.max_context:
    return (functools.partial(prefill, settings, start),)
  return lambda *args: prefill(settings, args[-1], *args[:-1]), state.int32()


@dataclasses.dataclass(frozen=True, order=True)
class Decode(state.Key):
  """The program `decode_programs.decode` for `width` slots together."""

  name = 'decode'
  width: int

  def program(self, shapes: state.Shapes) -> state.Program:
    s, empty = shapes.settings, shapes.empty
    *past, current = empty.ring
    number = state.int32()
    batch: Any = state.Batch(
      state.int32(self.width),
      jax.ShapeDtypeStruct((self.width,), jnp.bool_),
      row=number,
      max_steps=number,
      flag=number,
    )
    function = functools.partial(decode_programs.decode, s)
    if s.engine.max_context:
      function = functools.partial(
        decode_programs.decode_in_place, s, self._rows(s)
      )
    kv = state.KV(empty.segments, tuple(past))
    args = (kv, current, empty.slots, batch)
    results = (current, empty.slots, number, empty.slots.searches.finished)
    return state.Program(function, args, results, donated=(2, 3))

  def _rows(self, settings: state.Settings) -> int:
    return settings.engine.rows


@dataclasses.dataclass(frozen=True, order=True)
class DecodeSingle(Decode):
  """The program `decode_programs.decode_in_place` for single samples."""

  name = 'decode_single'

  def _rows(self, settings: state.Settings) -> int:
    return 1


@dataclasses.dataclass(frozen=True, order=True)
class MoveSteps(state.Key):
  """The program `decode_programs.move_steps` for one slot."""

  name = 'move_steps'

  def program(self, shapes: state.Shapes) -> state.Program:
    segments, [ring] = shapes.empty.segments, shapes.empty.ring
    slots = shapes.empty.slots
    return state.Program(
      functools.partial(decode_programs.move_steps, shapes.settings),
      (segments, ring, slots, state.int32()),
      (segments, slots),
      donated=(1, 3),
    )


@dataclasses.dataclass(frozen=True, order=True)
class Hypotheses(state.Key):
  """The program `programs.hypotheses` for one slot."""

  name = 'hypotheses'

  def program(self, shapes: state.Shapes) -> state.Program:
    function = functools.partial(programs.hypotheses, shapes.settings)
    slots = shapes.empty.slots
    results = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
      (slots.searches.kept, slots.searches.trace),
    )
    return state.Program(function, (slots, state.int32()), results)


@dataclasses.dataclass(frozen=True, order=True)
class Progress(state.Key):
  """The program `programs.progress` for the newest `window` steps."""

  name = 'progress'
  window: int

  def program(self, shapes: state.Shapes) -> state.Program:
    function = functools.partial(
      programs.progress, shapes.settings, self.window
    )
    slots = shapes.empty.slots
    results = jax.eval_shape(
      lambda searches: streams.progress(searches, self.window), slots.searches
    )
    return state.Program(function, (slots,), results)
