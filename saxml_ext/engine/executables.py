"""Compiles the engine's programs, each for the shapes that it is used with."""

from collections.abc import Callable
from concurrent import futures
import dataclasses
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine import programs
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.search import search


class Program(NamedTuple):
  """What to compile.

  function: of the weights and more; args: the shapes of what more; donated:
  which arguments it may overwrite, the weights being argument 0.
  """

  function: Callable
  args: tuple[Any, ...]
  donated: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Shapes:
  """Shapes of the state, of which programs are made.

  Attributes:
    settings: static.
    stacked: whether layers, and so their KV, are stacked.
  """

  settings: state.Settings
  stacked: bool

  def slots(self) -> state.Slots:
    return jax.eval_shape(lambda: state.empty_slots(self.settings))

  def segments(self, end: int) -> tuple[cache.Block, ...]:
    """Those that a prompt of `end` tokens reaches."""
    count = self.settings.engine.segments_for(end)
    return jax.eval_shape(
      lambda: tuple(
        state.empty_segment(self.settings, index, self.stacked)
        for index in range(count)
      )
    )

  def suffix(self) -> cache.Block:
    return jax.eval_shape(
      lambda: state.empty_suffix(self.settings, self.stacked)
    )


@dataclasses.dataclass(frozen=True, order=True)
class PrefillAndInsert:
  """`programs.prefill_and_insert` of `rows` prompts, places start to end."""

  rows: int
  start: int
  end: int

  def __str__(self) -> str:
    return f'prefill_and_insert {self.rows} {self.start} {self.end}'

  def program(self, shapes: Shapes) -> Program:
    s = shapes.settings
    options = jax.eval_shape(
      lambda: search.options_like(self.rows, s.engine.max_stop_ids, 0)
    )
    tokens = _int32(self.rows, self.end - self.start)
    prompts = state.Prompts(
      tokens, _int32(self.rows), _int32(self.rows), options
    )
    return Program(
      functools.partial(programs.prefill_and_insert, s, self.start),
      (shapes.segments(self.end), shapes.slots(), prompts),
      donated=(1, 2),
    )


@dataclasses.dataclass(frozen=True, order=True)
class PrefillChunk:
  """`programs.prefill_chunk` of `rows` prompts, places start to end."""

  rows: int
  start: int
  end: int

  def __str__(self) -> str:
    return f'prefill_chunk {self.rows} {self.start} {self.end}'

  def program(self, shapes: Shapes) -> Program:
    tokens = _int32(self.rows, self.end - self.start)
    return Program(
      functools.partial(programs.prefill_chunk, shapes.settings, self.start),
      (shapes.segments(self.end), tokens, _int32(self.rows)),
      donated=(1,),
    )


@dataclasses.dataclass(frozen=True, order=True)
class Decode:
  """`programs.decode` of `width` slots together."""

  width: int

  def __str__(self) -> str:
    return f'decode {self.width}'

  def program(self, shapes: Shapes) -> Program:
    e = shapes.settings.engine
    suffix = shapes.suffix()
    args = (
      shapes.segments(e.segments[-1]),
      (suffix,) * (e.num_suffix_blocks - 1),
      suffix,
      shapes.slots(),
      _int32(self.width),
      jax.ShapeDtypeStruct((self.width,), jnp.bool_),
      _int32(),
      _int32(),
    )
    function = functools.partial(programs.decode, shapes.settings)
    return Program(function, args, donated=(3, 4))


@dataclasses.dataclass(frozen=True)
class Score:
  """`programs.score` of the longest sequence that there can be."""

  def __str__(self) -> str:
    return 'score'

  def program(self, shapes: Shapes) -> Program:
    s = shapes.settings
    args = (_int32(s.max_positions), _int32(), _int32())
    return Program(functools.partial(programs.score, s), args)


@dataclasses.dataclass(frozen=True)
class Hypotheses:
  """`programs.hypotheses` of one slot."""

  def __str__(self) -> str:
    return 'hypotheses'

  def program(self, shapes: Shapes) -> Program:
    function = functools.partial(programs.hypotheses, shapes.settings)
    return Program(function, (shapes.slots(), _int32()))


# A program and what its shapes depend on.
Key = PrefillAndInsert | PrefillChunk | Decode | Score | Hypotheses


class Executables:
  """Compiled programs by key; compiled when first needed, or all at once."""

  def __init__(
    self,
    settings: state.Settings,
    weights: weights_lib.Weights,
    mesh: jax.sharding.Mesh | None = None,
  ):
    """Compiles nothing yet.

    Args:
      settings: static.
      weights: the model; for `lower` alone, their shapes will do.
      mesh: the devices, among which `weights` are split; None: one device.
    """
    self._shapes = Shapes(settings, weights.stacked)
    self._weights = weights
    self._mesh = mesh
    self._compiled: dict[Key, Callable] = {}

  @property
  def compiled(self) -> frozenset[Key]:
    """The programs that are ready."""
    return frozenset(self._compiled)

  def __call__(self, key: Key, *args):
    """Runs a program; the weights go without saying."""
    if key not in self._compiled:
      self._compile(key)
    return self._compiled[key](self._weights, *args)

  def compile_all(self, progress: Callable[[str], None] | None = None) -> None:
    """Compiles every program, two at a time; `progress` gets a line each."""
    keys = self._keys()
    began = time.monotonic()
    with futures.ThreadPoolExecutor(2) as pool:
      for i, key in enumerate(pool.map(self._compile, keys), 1):
        if progress is not None:
          seconds = time.monotonic() - began
          progress(f'compiled {i} of {len(keys)}: {key} ({seconds:.1f} s)')

  def lower(self, key: Key) -> jax.stages.Lowered:
    """A program before it is compiled."""
    function, args, donated = key.program(self._shapes)
    args = (jax.eval_shape(lambda: self._weights), *args)
    if self._mesh is None:
      return jax.jit(function, donate_argnums=donated).lower(*args)
    with jax.set_mesh(self._mesh):
      # State comes back as it went in, or it could not be donated.
      results = sharding.shardings(self._mesh, jax.eval_shape(function, *args))
      jitted = jax.jit(function, donate_argnums=donated, out_shardings=results)
      return jitted.lower(*sharding.structs(self._mesh, args))

  def _keys(self) -> list[Key]:
    e = self._shapes.settings.engine
    inserts: set[PrefillAndInsert] = set()
    chunks: set[PrefillChunk] = set()
    for bucket in e.buckets:
      *firsts, last = e.chunks(bucket)
      for rows in e.prefill_batches:
        inserts.add(PrefillAndInsert(rows, *last))
        chunks.update(PrefillChunk(rows, *chunk) for chunk in firsts)
    return [
      *map(Decode, e.widths),
      *sorted(inserts),
      *sorted(chunks),
      Score(),
      Hypotheses(),
    ]

  def _compile(self, key: Key) -> Key:
    if key not in self._compiled:
      self._compiled[key] = self.lower(key).compile()
    return key


def _int32(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.int32)
