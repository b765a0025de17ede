"""Programs of our own for the CPU, called from XLA's.

attend          XLA computes with shapes that are fixed when it compiles, so
                each slot reads as many keys as the one that has most. Here each
                reads its own.
multiply        By AVX512-VNNI, at two to three times the rate of XLA's products;
                or by AVX2.
multiply_floats With few rows as fast as memory gives the weights, which XLA
                rearranges in memory first, each time.
is_raised       See `interrupt.py`.
find_likeliest  One pass over the logits, and one for their sum, where XLA makes
                half a dozen.
find_candidates The same of all beams of a group together, whose best are found
                by looking at few tokens of each.
"""

from collections.abc import Sequence
import ctypes
import functools
import os
from typing import Any

import jax
import jax.numpy as jnp

from saxml_ext.engine.kernels import cpu

LIBRARY = os.path.join(os.path.dirname(__file__), 'libkernels.so')
_ATTEND = 'saxml_attend'
_FIND_CANDIDATES = 'saxml_find_candidates'
_FIND_LIKELIEST = 'saxml_find_likeliest'
_MULTIPLY = 'saxml_multiply'
_MULTIPLY_FLOATS = 'saxml_multiply_floats'
IS_RAISED = 'saxml_is_raised'
# What compiled programs call them.
TARGETS = (
  _ATTEND,
  _FIND_CANDIDATES,
  _FIND_LIKELIEST,
  _MULTIPLY,
  _MULTIPLY_FLOATS,
  IS_RAISED,
)


@functools.cache
def library() -> ctypes.CDLL:
  """The shared library."""
  return ctypes.CDLL(LIBRARY)


def _register() -> None:
  library().SaxmlAllowAvx512(ctypes.c_bool(not cpu.without_avx512()))
  targets = {
    _ATTEND: 'SaxmlAttend',
    _FIND_CANDIDATES: 'SaxmlFindCandidates',
    _FIND_LIKELIEST: 'SaxmlFindLikeliest',
    _MULTIPLY: 'SaxmlMultiply',
    _MULTIPLY_FLOATS: 'SaxmlMultiplyFloats',
    IS_RAISED: 'SaxmlIsRaised',
  }
  for name, symbol in targets.items():
    handler = jax.ffi.pycapsule(getattr(library(), symbol))
    jax.ffi.register_ffi_target(name, handler, platform='cpu')


_register()


def attend(
  queries: jax.Array,
  reach: jax.Array,
  ancestry: Sequence[jax.Array],
  segments: Sequence[tuple[Any, Any]],
  suffixes: Sequence[tuple[Any, Any]],
) -> jax.Array:
  """Attention of a decode step, one layer.

  Args:
    queries: [S, N, K * G, H] float32, G of them to each beam, in which row k *
      G + g belongs to beam k.
    reach: [S] int32, tokens of each slot's prompt; below 0: nobody waits for
      this slot.
    ancestry: of each suffix block, [S, K, W] int8 or int16.
    segments: The keys [S, N, H, T] and values [S, N, T, H] of the prompts; each
      is an array, or int8 values with their scales (`attention.cache.KV`).
    suffixes: The keys and values [S, N, T, H] of the suffix blocks, T = W * K.

  Returns:
    [S, N, K * G, H] float32; zeros for slots that nobody waits for.
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


def usable() -> bool:
  """Whether kernels may be called here: none is split among a mesh's devices."""
  return jax.sharding.get_abstract_mesh().empty


def find_likeliest(
  logits: jax.Array, barred: jax.Array, count: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """The likeliest tokens of each row.

  Args:
    logits: [S, R, V] float32.
    barred: [S, E] int32, tokens whose logits are taken as minus infinity; below
      0: none.
    count: C, at most V.

  Returns:
    The largest logit of all, barred or not, [S, R]; the logarithm of the sum of
    exp(logit - the largest), [S, R]; the C largest logits [S, R, C] float32, in
    descending order; and their tokens int32, of equals the lowest first.
  """
  rows = logits.shape[:2]
  call = jax.ffi.ffi_call(
    _FIND_LIKELIEST,
    (
      jax.ShapeDtypeStruct(rows, jnp.float32),
      jax.ShapeDtypeStruct(rows, jnp.float32),
      jax.ShapeDtypeStruct((*rows, count), jnp.float32),
      jax.ShapeDtypeStruct((*rows, count), jnp.int32),
    ),
  )
  return call(logits, barred)


def find_candidates(
  logits: jax.Array,
  scores: jax.Array,
  barred: jax.Array,
  active: jax.Array,
  count: int,
) -> tuple[jax.Array, ...]:
  """The likeliest continuations of each group of beams.

  Args:
    logits: [S, R, V] float32.
    scores: [S, R] float32, sums of log-probabilities of the beams.
    barred: as of `find_likeliest`.
    active: [S] int32, so many beams of a group are continued; the others cost
      nothing.
    count: C. Where there are fewer continuations the last sums are minus
      infinity.

  Returns:
    As `find_likeliest` the largest logits and the logarithms [S, R], both 0 for
    beams that are not continued; and of the candidates, the best first, their
    sums and their tokens' log-probabilities [S, C] float32, beams and tokens
    [S, C] int32. Of equal sums the lower beam comes first, of one beam the
    larger logit, of equal logits the lower token.
  """
  rows = logits.shape[:2]
  chosen = (logits.shape[0], count)
  call = jax.ffi.ffi_call(
    _FIND_CANDIDATES,
    (
      jax.ShapeDtypeStruct(rows, jnp.float32),
      jax.ShapeDtypeStruct(rows, jnp.float32),
      jax.ShapeDtypeStruct(chosen, jnp.float32),
      jax.ShapeDtypeStruct(chosen, jnp.float32),
      jax.ShapeDtypeStruct(chosen, jnp.int32),
      jax.ShapeDtypeStruct(chosen, jnp.int32),
    ),
  )
  return call(logits, scores, barred, active)


def can_multiply() -> bool:
  """Whether to use `multiply`.

  It is made for AVX512-VNNI and AVX2. With a matrix unit XLA is faster.
  """
  return cpu.has_int8_dots() and not cpu.has_int8_matrices() and usable()


def multiply(
  x: jax.Array,
  values: jax.Array,
  scale: jax.Array,
  bias: jax.Array,
  planes: int = 1,
) -> jax.Array:
  """Products of activations, made integers row by row, with int8 weights.

  Args:
    x: [M, K] float32.
    values: [N, K] int8.
    scale: [N] float32.
    bias: [N] float32, added.
    planes: 1 makes int8 of the activations; 2 makes integers of 15 bits, each
      held by two int8, for twice the time.

  Returns:
    [M, N] float32.
  """
  shape = (x.shape[0], values.shape[0])
  call = jax.ffi.ffi_call(_MULTIPLY, jax.ShapeDtypeStruct(shape, jnp.float32))
  return call(x, values, scale, bias, planes=planes)


def multiply_floats(
  x: jax.Array, weights: jax.Array, bias: jax.Array, outputs_first: bool
) -> jax.Array:
  """Products of a few rows of activations with float32 weights.

  Weights are read once for eight rows.

  Args:
    x: [M, K] float32.
    weights: float32, [N, K] if `outputs_first`, else [K, N].
    bias: [N] float32, added.
    outputs_first: static.

  Returns:
    [M, N] float32.
  """
  shape = x.shape[0], bias.shape[0]
  call = jax.ffi.ffi_call(
    _MULTIPLY_FLOATS, jax.ShapeDtypeStruct(shape, jnp.float32)
  )
  return call(x, weights, bias, outputs_first=outputs_first)
