"""Compiles the engine's programs, each for the shapes that it is used with."""

from collections.abc import Callable
from concurrent import futures
import functools
import time

import jax
import jax.numpy as jnp

from saxml_ext.engine import cache
from saxml_ext.engine import programs
from saxml_ext.engine import weights as weights_lib

# A program and what its shapes depend on:
#   ("admit", prompts in the batch, bucket)
#   ("decode",)
#   ("score",)
#   ("hypotheses",)
Key = tuple


class Executables:
  """Compiled programs by key; compiled when first needed, or all at once."""

  def __init__(self, settings: programs.Settings, weights: weights_lib.Weights):
    self._settings = settings
    self._weights = weights
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

  def _keys(self) -> list[Key]:
    e = self._settings.engine
    return [
        ("decode",),
        *(("admit", b, t) for b in e.prefill_batches for t in e.buckets),
        ("score",),
        ("hypotheses",),
    ]

  def _compile(self, key: Key) -> Key:
    if key not in self._compiled:
      function, args, donated = getattr(self, "_" + key[0])(*key[1:])
      function = functools.partial(function, self._settings)
      jitted = jax.jit(function, donate_argnums=donated)
      shapes = jax.eval_shape(lambda: self._weights)
      self._compiled[key] = jitted.lower(shapes, *args).compile()
    return key

  def _admit(self, rows: int, bucket: int):
    args = (
        self._segments(self._settings.engine.segments_for(bucket)),
        self._slots(),
        programs.Prompts(_int32(rows, bucket), *[_int32(rows)] * 4),
    )
    return programs.admit, args, (1, 2)

  def _decode(self):
    e = self._settings.engine
    suffix = self._block(e.suffix_block * e.num_beams)
    args = (
        self._segments(len(e.segments)),
        (suffix,) * (e.num_suffix_blocks - 1),
        suffix,
        self._slots(),
        jax.ShapeDtypeStruct((e.num_slots,), jnp.bool_),
        _int32(),
        _int32(),
    )
    return programs.decode, args, (3, 4)

  def _score(self):
    args = (_int32(self._settings.max_positions), _int32(), _int32())
    return programs.score, args, ()

  def _hypotheses(self):
    return programs.hypotheses, (self._slots(), _int32()), ()

  def _slots(self) -> programs.Slots:
    return jax.eval_shape(lambda: programs.empty_slots(self._settings))

  def _segments(self, count: int) -> tuple[cache.Block, ...]:
    lengths = self._settings.engine.segment_lengths[:count]
    return tuple(self._block(length) for length in lengths)

  def _block(self, length: int) -> cache.Block:
    s = self._settings
    return jax.eval_shape(
        lambda: cache.empty_block(
            s.model, s.engine.num_slots, length, s.engine.dtype
        )
    )


def _int32(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.int32)
