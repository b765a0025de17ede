"""Programs of our own for the CPU, called from XLA's.

XLA:CPU computes with shapes that are fixed when it compiles, so each slot reads
as many keys as the one that has most. Here each reads its own.
"""

from collections.abc import Sequence
import ctypes
import os

import jax
import jax.numpy as jnp

from saxml_ext.engine import cache
from saxml_ext.engine import cpu

_LIBRARY = os.path.join(os.path.dirname(__file__), "libkernels.so")
_ATTEND = "saxml_attend"
_MULTIPLY = "saxml_multiply"


def _register() -> None:
  library = ctypes.CDLL(_LIBRARY)
  for name, symbol in (
      (_ATTEND, "SaxmlAttend"),
      (_MULTIPLY, "SaxmlMultiply"),
  ):
    handler = jax.ffi.pycapsule(getattr(library, symbol))
    jax.ffi.register_ffi_target(name, handler, platform="cpu")


_register()


def attend(
    queries: jax.Array,
    reach: jax.Array,
    ancestry: Sequence[jax.Array],
    segments: Sequence[tuple[cache.KV, cache.KV]],
    suffixes: Sequence[tuple[cache.KV, cache.KV]],
) -> jax.Array:
  """Attention of a decode step, one layer.

  Args:
    queries: [S, N, K, H] float32.
    reach: [S] int32, tokens of each slot's prompt; below 0: nobody waits for
      this slot.
    ancestry: of each suffix block, [S, K, W] int8.
    segments: keys [S, N, H, T] and values [S, N, T, H] of the prompts.
    suffixes: the same of the suffix blocks, T = W * K.

  Returns:
    [S, N, K, H] float32; zeros for slots that nobody waits for.
  """
  call = jax.ffi.ffi_call(
      _ATTEND, jax.ShapeDtypeStruct(queries.shape, jnp.float32)
  )
  return call(
      queries,
      reach,
      *ancestry,
      *jax.tree.leaves((*segments, *suffixes)),
      segments=len(segments),
      suffixes=len(suffixes),
  )


def can_multiply(size: int) -> bool:
  """Whether to use `multiply` for rows of `size` numbers.

  It is made for AVX512-VNNI. With a matrix unit XLA is faster. Nor can it be
  split among the devices of a mesh.
  """
  return (
      size % 4 == 0
      and cpu.has_int8_dots()
      and not cpu.has_int8_matrices()
      and jax.sharding.get_abstract_mesh().empty
  )


def multiply(x: jax.Array, values: jax.Array, scale: jax.Array) -> jax.Array:
  """Products of activations, made int8 row by row, with int8 weights.

  Args:
    x: [M, K] float32; K is a multiple of 4.
    values: [N, K] int8.
    scale: [N] float32.

  Returns:
    [M, N] float32.
  """
  shape = (x.shape[0], values.shape[0])
  call = jax.ffi.ffi_call(_MULTIPLY, jax.ShapeDtypeStruct(shape, jnp.float32))
  return call(x, values, scale)
