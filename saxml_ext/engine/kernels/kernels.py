"""Programs of our own for the CPU, called from XLA's, and what suits it.

attend          XLA computes with shapes that are fixed when it compiles, so
                each slot reads as many keys as the one that has most. Here each
                reads its own.
multiply        By AVX512-VNNI, at two to three times the rate of XLA's
products;
                or by AVX2.
multiply_floats With few rows as fast as memory gives the weights, which XLA
                rearranges in memory first, each time.
is_raised       Tells a program that runs that it is to end; see `Flag`.
find_likeliest  One pass over the logits, and one for their sum, where XLA makes
                half a dozen.
find_candidates The same of all beams of a group together, whose best are found
                by looking at few tokens of each.
"""

from collections.abc import Callable, Sequence
import ctypes
import functools
import itertools
import os
import re
from typing import Any

import jax
import jax.numpy as jnp

LIBRARY = os.path.join(os.path.dirname(__file__), 'libkernels.so')
# Names in compiled programs -> functions of the library.
_SYMBOLS = {
  'saxml_attend': 'SaxmlAttend',
  'saxml_find_candidates': 'SaxmlFindCandidates',
  'saxml_find_likeliest': 'SaxmlFindLikeliest',
  'saxml_multiply': 'SaxmlMultiply',
  'saxml_multiply_floats': 'SaxmlMultiplyFloats',
  'saxml_is_raised': 'SaxmlIsRaised',
}
TARGETS = tuple(_SYMBOLS)
_numbers = itertools.count()

_CPUINFO = '/proc/cpuinfo'
# XLA's option for the newest instructions that it may use.
_MOST = re.compile(r'--xla_cpu_max_isa=(\w+)')
_WITHOUT_AVX512 = ('AVX2', 'AVX', 'SSE4_2')


def without_avx512() -> bool:
  """Returns True if XLA, and so our kernels, must do without AVX-512."""
  found = _MOST.findall(os.environ.get('XLA_FLAGS', ''))
  return bool(found) and found[-1].upper() in _WITHOUT_AVX512


@functools.cache
def features() -> frozenset[str]:
  """Returns the processor's features by their names in Linux; elsewhere none.

  Those that XLA was told not to use are left out.
  """
  try:
    with open(_CPUINFO, encoding='utf-8') as file:
      lines = [line for line in file if line.startswith('flags')]
  except FileNotFoundError:  # Not Linux.
    return frozenset()
  found = frozenset(lines[0].split(':')[1].split() if lines else ())
  if without_avx512():
    newer = ('avx512', 'avx_vnni', 'amx')
    found = frozenset(f for f in found if not f.startswith(newer))
  return found


def prefers_fine_prompts() -> bool:
  """Returns True to multiply activations of prompts in 15 bits, not in 8.

  That takes as long as bfloat16 at best, a tenth to a third of a request's
  time, and is nearer to float32. A small GPT-J with uneven channels kept 100.0
  % of ROUGE-2 with prompts in bfloat16, and 99.5 % in int8. With a matrix unit
  int8 is 2,700 Gop/s and bfloat16 1,270 (an Intel Xeon), and all is int8.
  """
  return 'avx512_bf16' in features() and not has_int8_matrices()


def has_int8_dots() -> bool:
  """Returns True if vector instructions sum products of int8."""
  return bool({'avx512_vnni', 'avx2'} & features())


def has_int8_matrices() -> bool:
  """Returns True if there is a matrix unit for int8."""
  return 'amx_int8' in features()


@functools.cache
def library() -> ctypes.CDLL:
  """Returns the shared library."""
  return ctypes.CDLL(LIBRARY)


def _register() -> None:
  library().SaxmlAllowAvx512(ctypes.c_bool(not without_avx512()))
  for name, symbol in _SYMBOLS.items():
    handler = jax.ffi.pycapsule(getattr(library(), symbol))
    jax.ffi.register_ffi_target(name, handler, platform='cpu')


_register()


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.float32)


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.int32)


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
  call = jax.ffi.ffi_call('saxml_attend', _floats(*queries.shape))
  return call(
    queries,
    reach,
    *ancestry,
    *jax.tree.leaves((*segments, *suffixes)),
    segments=len(segments),
    suffixes=len(suffixes),
  )


def usable() -> bool:
  """Returns True if kernels may be called: no mesh's devices can split them."""
  return jax.sharding.get_abstract_mesh().empty


def choose(by_kernel: Callable, otherwise: Callable, *args: Any) -> Any:
  """Returns the result of a function that calls kernels, or of another one.

  Args:
    by_kernel: Computes the result on a CPU where kernels may be called.
    otherwise: Computes it elsewhere.
    *args: The arguments of both.
  """
  if not usable():
    return otherwise(*args)
  return jax.lax.platform_dependent(*args, cpu=by_kernel, default=otherwise)


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
  best = _floats(*rows, count), _ints(*rows, count)
  results = (_floats(*rows), _floats(*rows), *best)
  return jax.ffi.ffi_call('saxml_find_likeliest', results)(logits, barred)


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
  slots, rows, _ = logits.shape
  of_rows, sums = _floats(slots, rows), _floats(slots, count)
  chosen = _ints(slots, count)
  results = (of_rows, of_rows, sums, sums, chosen, chosen)
  call = jax.ffi.ffi_call('saxml_find_candidates', results)
  return call(logits, scores, barred, active)


def can_multiply() -> bool:
  """Returns True if `multiply` is the fastest.

  It is made for AVX512-VNNI and AVX2. With a matrix unit XLA is faster.
  """
  return has_int8_dots() and not has_int8_matrices() and usable()


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
  result = _floats(x.shape[0], values.shape[0])
  call = jax.ffi.ffi_call('saxml_multiply', result)
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
  result = _floats(x.shape[0], bias.shape[0])
  call = jax.ffi.ffi_call('saxml_multiply_floats', result)
  return call(x, weights, bias, outputs_first=outputs_first)


class Flag:
  """A flag of this process, which ends a program that runs on the CPU.

  Any thread may raise it.

  Attributes:
    number: The number by which a program knows it.
  """

  def __init__(self) -> None:
    """Takes a flag that is down."""
    self.number = next(_numbers)
    self.set(up=False)

  def set(self, up: bool) -> None:
    """Raises it, or takes it down."""
    library().SaxmlSetFlag(ctypes.c_int64(self.number), ctypes.c_bool(up))


def is_raised(number: jax.Array, step: jax.Array) -> jax.Array:
  """Returns whether a flag is up now, [] bool; False except on one CPU device.

  Args:
    number: [] int32, the number of the flag.
    step: [] int32, another one at every call, or calls might be merged.
  """
  down = jnp.zeros((), bool)
  call = jax.ffi.ffi_call(
    'saxml_is_raised', jax.ShapeDtypeStruct((), jnp.bool_)
  )
  return choose(call, lambda number, step: down, number, step)
