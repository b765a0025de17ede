"""Compiles the engine's programs, each for the shapes that it is used with."""

from collections.abc import Callable
from concurrent import futures
import functools
import time

import jax
import jax.numpy as jnp

from saxml_ext.engine import cache
from saxml_ext.engine import programs
from saxml_ext.engine import search
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib

# A program and what its shapes depend on:
#   ("admit", prompts in the batch, start, end)
#   ("extend", prompts in the batch, start, end)
#   ("decode", slots decoded together)
#   ("score",)
#   ("hypotheses",)
Key = tuple


class Executables:
  """Compiled programs by key; compiled when first needed, or all at once."""

  def __init__(
      self,
      settings: programs.Settings,
      weights: weights_lib.Weights,
      mesh: jax.sharding.Mesh | None = None,
  ):
    """Compiles nothing yet.

    Args:
      settings: static.
      weights: the model; for `lower` alone, their shapes will do.
      mesh: the devices, among which `weights` are split; None: one device.
    """
    self._settings = settings
    self._weights = weights
    self._mesh = mesh
    self._compiled: dict[Key, Callable] = {}

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
          name = " ".join(map(str, key))
          seconds = time.monotonic() - began
          progress(f"compiled {i} of {len(keys)}: {name} ({seconds:.1f} s)")

  def lower(self, key: Key) -> jax.stages.Lowered:
    """A program before it is compiled."""
    function, args, donated = getattr(self, "_" + key[0])(*key[1:])
    args = (jax.eval_shape(lambda: self._weights), *args)
    if self._mesh is None:
      return jax.jit(function, donate_argnums=donated).lower(*args)
    with jax.set_mesh(self._mesh):
      # State comes back as it went in, or it could not be donated.
      results = sharding.shardings(self._mesh, jax.eval_shape(function, *args))
      jitted = jax.jit(function, donate_argnums=donated, out_shardings=results)
      return jitted.lower(*sharding.structs(self._mesh, args))

  def _keys(self) -> list[Key]:
    e = self._settings.engine
    prefill = set()
    for bucket in e.buckets:
      *chunks, last = e.chunks(bucket)
      for rows in e.prefill_batches:
        prefill.add(("admit", rows, *last))
        prefill.update(("extend", rows, *chunk) for chunk in chunks)
    return [
        *(("decode", width) for width in e.widths),
        *sorted(prefill),
        ("score",),
        ("hypotheses",),
    ]

  def _compile(self, key: Key) -> Key:
    if key not in self._compiled:
      self._compiled[key] = self.lower(key).compile()
    return key

  # What to compile: a function of the weights and more, the shapes of what
  # more, and which arguments it may overwrite.

  def _admit(self, rows: int, start: int, end: int):
    s = self._settings
    options = jax.eval_shape(
        lambda: search.options_like(rows, s.engine.max_stop_ids, 0)
    )
    args = (
        self._segments(s.engine.segments_for(end)),
        self._slots(),
        programs.Prompts(
            _int32(rows, end - start), _int32(rows), _int32(rows), options
        ),
    )
    return functools.partial(programs.admit, s, start), args, (1, 2)

  def _extend(self, rows: int, start: int, end: int):
    s = self._settings
    args = (
        self._segments(s.engine.segments_for(end)),
        _int32(rows, end - start),
        _int32(rows),
    )
    return functools.partial(programs.extend, s, start), args, (1,)

  def _decode(self, width: int):
    e = self._settings.engine
    suffix = jax.eval_shape(
        lambda: programs.empty_suffix(self._settings, self._weights.stacked)
    )
    args = (
        self._segments(len(e.segments)),
        (suffix,) * (e.num_suffix_blocks - 1),
        suffix,
        self._slots(),
        _int32(width),
        jax.ShapeDtypeStruct((width,), jnp.bool_),
        _int32(),
        _int32(),
    )
    return functools.partial(programs.decode, self._settings), args, (3, 4)

  def _score(self):
    args = (_int32(self._settings.max_positions), _int32(), _int32())
    return functools.partial(programs.score, self._settings), args, ()

  def _hypotheses(self):
    function = functools.partial(programs.hypotheses, self._settings)
    return function, (self._slots(), _int32()), ()

  def _slots(self) -> programs.Slots:
    return jax.eval_shape(lambda: programs.empty_slots(self._settings))

  def _segments(self, count: int) -> tuple[cache.Block, ...]:
    def block(index: int) -> cache.Block:
      stacked = self._weights.stacked
      return programs.empty_segment(self._settings, index, stacked)

    return jax.eval_shape(lambda: tuple(block(i) for i in range(count)))


def _int32(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.int32)
