"""Calls the engine's own CPU kernels from XLA programs.

- `attend`: XLA compiles for fixed shapes, so every slot would read as many keys
  as the longest one. This kernel reads only the keys of each slot.
- `multiply`: It uses AVX512-VNNI, and runs two to three times as fast as XLA.
  It can also use AVX2. `multiply_gated` is two such products and their gating.
  `multiply_likeliest` finds the largest products without writing the others.
- `multiply_floats`: With few rows, its speed is the bandwidth of reading the
  weights. XLA first copies the weights to another layout, in each call.
- `zeros`: XLA would write all zeros of a cache that is hardly used.
"""

from collections.abc import Callable, Sequence
import ctypes
import functools
import os
import re
from typing import Any

import jax
import jax.numpy as jnp

LIBRARY = os.path.join(os.path.dirname(__file__), 'libkernels.so')
# Maps the names in compiled programs to functions of the library.
_SYMBOLS = {
  'saxml_attend': 'SaxmlAttend',
  'saxml_find_candidates': 'SaxmlFindCandidates',
  'saxml_find_likeliest': 'SaxmlFindLikeliest',
  'saxml_multiply': 'SaxmlMultiply',
  'saxml_multiply_floats': 'SaxmlMultiplyFloats',
  'saxml_multiply_int4': 'SaxmlMultiplyInt4',
  'saxml_multiply_gated': 'SaxmlMultiplyGated',
  'saxml_multiply_likeliest': 'SaxmlMultiplyLikeliest',
  'saxml_is_raised': 'SaxmlIsRaised',
  'saxml_zeros': 'SaxmlZeros',
}
TARGETS = tuple(_SYMBOLS)
# The parts of `multiply_likeliest`: at most this many, of at least this many
# outputs.
_MOST_PARTS = 64
_LEAST_OUTPUTS = 1024

_CPUINFO = '/proc/cpuinfo'
# XLA's flag for the newest instruction set that it may use.
_MOST = re.compile(r'--xla_cpu_max_isa=(\w+)')
_WITHOUT_AVX512 = ('AVX2', 'AVX', 'SSE4_2')


def without_avx512() -> bool:
  """Returns True if a flag forbids AVX-512 to XLA, and so to the kernels."""
  limits = _MOST.findall(os.environ.get('XLA_FLAGS', ''))
  return bool(limits) and limits[-1].upper() in _WITHOUT_AVX512


@functools.cache
def features() -> frozenset[str]:
  """Returns the processor's features by their Linux names.

  The result is empty on other systems. It excludes features that XLA is
  configured not to use.
  """
  try:
    with open(_CPUINFO, encoding='utf-8') as file:
      lines = [line for line in file if line.startswith('flags')]
  except FileNotFoundError:  # Not Linux.
    return frozenset()
  names = frozenset(lines[0].split(':')[1].split() if lines else ())
  if without_avx512():
    newer = ('avx512', 'avx_vnni', 'amx')
    names = frozenset(f for f in names if not f.startswith(newer))
  return names


def prefers_fine_prompts() -> bool:
  """Returns True if prompts' activations are multiplied in 15 bits, not in 8.

  15 bits take as long as bfloat16 at best, which is 10% to 33% of a request's
  time, and are closer to float32. A small GPT-J with uneven channels kept
  100.0% of ROUGE-2 with prompts in bfloat16, and 99.5% in int8. With a matrix
  unit int8 runs at 2,700 Gop/s and bfloat16 at 1,270 (on an Intel Xeon), so all
  products use int8.
  """
  return 'avx512_bf16' in features() and not has_int8_matrices()


def has_int8_dots() -> bool:
  """Returns True if vector instructions sum products of int8."""
  return bool({'avx512_vnni', 'avx2'} & features())


def has_int8_matrices() -> bool:
  """Returns True if there is a matrix unit for int8."""
  return 'amx_int8' in features()


def has_bfloat16_products() -> bool:
  """Returns True if there are instructions for products of bfloat16."""
  return bool({'amx_bf16', 'avx512_bf16'} & features())


@functools.cache
def library() -> ctypes.CDLL | None:
  """Returns the shared library of the kernels, or None if it was not built.

  Bazel builds it. A checkout without it can compute on GPUs and TPUs.
  """
  return ctypes.CDLL(LIBRARY) if os.path.exists(LIBRARY) else None


def _register() -> None:
  built = library()
  if not built:
    return
  built.SaxmlAllowAvx512(ctypes.c_bool(not without_avx512()))
  for name, symbol in _SYMBOLS.items():
    handler = jax.ffi.pycapsule(getattr(built, symbol))
    jax.ffi.register_ffi_target(name, handler, platform='cpu')


_register()


# The layer of arrays that are not stacked.
_ONLY = 0


def floats(*shape: int) -> jax.ShapeDtypeStruct:
  """Returns the form of a result in float32."""
  return jax.ShapeDtypeStruct(shape, jnp.float32)


def ints(*shape: int) -> jax.ShapeDtypeStruct:
  """Returns the form of a result in int32."""
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def attend(
  queries: jax.Array,
  lengths: jax.Array,
  ancestry: Sequence[jax.Array],
  segments: Sequence[tuple[Any, Any]],
  suffixes: Sequence[tuple[Any, Any]],
  slots: jax.Array,
  layer: jax.Array | int = _ONLY,
) -> jax.Array:
  """Computes attention of a decode step in one layer.

  Args:
    queries: The queries, [S, N, K * G, H] float32. Each beam has G of them, and
      row k * G + g belongs to beam k.
    lengths: The number of tokens in each slot's prompt, [S] int32. If negative,
      the slot's result is unused.
    ancestry: The ancestry of each suffix block, [S, K, W] int8 or int16.
    segments: The keys [B, N, H, T] and values [B, N, T, H] of the prompts. Each
      is an array, or int8 values with their scales (`attention.cache.KV`).
    suffixes: The keys and values [B, N, T, H] of the suffix blocks. Each of the
      W steps has T / W rows, at least K.
    slots: The positions of the slots in segments and suffixes, [S] int32.
    layer: The layer to read if keys and values have a leading dimension [L], []
      int32.

  Returns:
    The mixed values, [S, N, K * G, H] float32. They are zeros for slots whose
    results are unused.
  """
  call = jax.ffi.ffi_call('saxml_attend', floats(*queries.shape))
  return call(
    queries,
    lengths,
    slots,
    jnp.int32(layer),
    *ancestry,
    *jax.tree.leaves((*segments, *suffixes)),
    segments=len(segments),
    suffixes=len(suffixes),
  )


def zeros(shape: tuple[int, ...], dtype: Any) -> jax.Array:
  """Returns zeros whose memory is used only where it is written later.

  Each call returns an array of its own.
  """
  result = jax.ShapeDtypeStruct(shape, dtype)
  return jax.ffi.ffi_call('saxml_zeros', result, has_side_effect=True)()


def usable() -> bool:
  """Returns True if kernels may be called.

  They may not be called on meshes with several devices, which cannot split
  them.

  Raises:
    RuntimeError: The CPU is to compute, but the library was not built.
  """
  if not library() and jax.default_backend() == 'cpu':
    raise RuntimeError(
      f'{LIBRARY} does not exist, and the engine needs it on a CPU. Run the'
      ' program with Bazel, or build it first: ./bazelw build'
      ' //saxml_ext/engine/kernels:libkernels.so, and copy it from bazel-bin.'
    )
  return jax.sharding.get_abstract_mesh().empty


def choose(by_kernel: Callable, otherwise: Callable, *args: Any) -> Any:
  """Returns the result of a function that calls kernels, or of an alternative.

  Args:
    by_kernel: The function that runs on a CPU if kernels may be called.
    otherwise: The function that runs in all other cases.
    *args: The arguments of both functions.
  """
  if not usable():
    return otherwise(*args)
  return jax.lax.platform_dependent(*args, cpu=by_kernel, default=otherwise)


def can_multiply(planes: int = 1) -> bool:
  """Returns True if `multiply` is the fastest product on this processor.

  It is written for AVX512-VNNI and AVX2. With a matrix unit XLA is faster, but
  only in int8. In 15 bits it would have to use float32.

  Args:
    planes: The planes of the activations, as in `multiply`.
  """
  is_slower = planes == 1 and has_int8_matrices()
  return has_int8_dots() and not is_slower and usable()


def multiply(
  x: jax.Array,
  values: jax.Array,
  scale: jax.Array,
  bias: jax.Array,
  planes: int = 1,
  layer: jax.Array | int = _ONLY,
) -> jax.Array:
  """Multiplies activations, quantized row by row, with int8 weights.

  Args:
    x: The activations, [M, K] float32.
    values: The codes of the weights, [N, K] int8, or those of all layers, [L,
      N, K].
    scale: The scales of the weights, [N] float32.
    bias: The bias to add, [N] float32.
    planes: 1 to quantize activations to int8. 2 to quantize them to 15 bits, as
      two int8 numbers each, which takes twice the time.
    layer: The layer whose codes to read, [] int32.

  Returns:
    The products, [M, N] float32.
  """
  result = floats(x.shape[0], values.shape[-2])
  call = jax.ffi.ffi_call('saxml_multiply', result)
  return call(x, values, scale, bias, jnp.int32(layer), planes=planes)


def multiply_gated(
  x: jax.Array,
  gate: tuple[jax.Array, jax.Array, jax.Array],
  up: tuple[jax.Array, jax.Array, jax.Array],
  planes: int = 1,
  layer: jax.Array | int = _ONLY,
) -> jax.Array:
  """Computes silu(x @ gate) * (x @ up) with int8 weights.

  The activations are quantized once, and no product is written to memory.

  Args:
    x: The activations, [M, K] float32.
    gate: The codes [N, K] int8, scales [N] and bias [N] of the gate.
    up: The codes, scales and bias of the other weight, with the same shapes.
    planes: The planes of the activations, as in `multiply`.
    layer: The layer whose codes to read, as in `multiply`.

  Returns:
    The gated products, [M, N] float32.
  """
  result = floats(x.shape[0], up[0].shape[-2])
  call = jax.ffi.ffi_call('saxml_multiply_gated', result)
  return call(x, *gate, *up, jnp.int32(layer), planes=planes)


def multiply_likeliest(
  x: jax.Array,
  values: jax.Array,
  scale: jax.Array,
  bias: jax.Array,
  count: int,
  planes: int = 1,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Finds the largest products of each row, as `multiply` computes them.

  The other products are not written to memory. The outputs are searched in
  parts, on all threads. The parts depend on N only, so the results do not
  depend on the number of threads.

  Args:
    x: The activations, [M, K] float32.
    values: The codes of the weights, [N, K] int8.
    scale: The scales of the weights, [N] float32.
    bias: The bias to add, [N] float32.
    count: The number of outputs to find, C, at most N.
    planes: The planes of the activations, as in `multiply`.

  Returns:
    The largest product, [M]; the logarithm of the sum of exp(product -
    largest), [M]; the C largest products, [M, C] float32, in descending order;
    and their outputs, int32. If products are equal, the lowest output comes
    first.
  """
  rows = x.shape[0]
  parts = max(1, min(_MOST_PARTS, values.shape[0] // _LEAST_OUTPUTS))
  per_row, best = (parts, rows), (parts, rows, count)
  results = floats(*per_row), floats(*per_row), floats(*best), ints(*best)
  call = jax.ffi.ffi_call('saxml_multiply_likeliest', results)
  peaks, totals, products, outputs = call(x, values, scale, bias, planes=planes)
  peak = peaks.max(0)
  total = jnp.log((totals * jnp.exp(peaks - peak)).sum(0))
  # The parts are in ascending order, so ties go to the lowest output.
  products, outputs = (
    part.swapaxes(0, 1).reshape(rows, -1) for part in (products, outputs)
  )
  largest, indices = jax.lax.top_k(products, count)
  return peak, total, largest, jnp.take_along_axis(outputs, indices, -1)


def multiply_floats(
  x: jax.Array,
  weights: jax.Array,
  bias: jax.Array,
  outputs_first: bool,
  layer: jax.Array | int = _ONLY,
) -> jax.Array:
  """Multiplies a few rows of activations with weights in float.

  The weights are read once for eight rows.

  Args:
    x: The activations, [M, K] float32.
    weights: The weights, float32 or bfloat16, [N, K] if `outputs_first`, else
      [K, N]. A leading dimension [L] counts layers.
    bias: The bias to add, [N] float32.
    outputs_first: True if the outputs are the first of these two dimensions.
      Static.
    layer: The layer whose weights to read, [] int32.

  Returns:
    The products, [M, N] float32.
  """
  result = floats(x.shape[0], bias.shape[0])
  call = jax.ffi.ffi_call('saxml_multiply_floats', result)
  return call(x, weights, bias, jnp.int32(layer), outputs_first=outputs_first)
