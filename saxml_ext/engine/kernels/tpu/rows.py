"""Quantizes rows of activations on TPU in one pass over memory.

XLA takes one pass for each sum or maximum of a row, and one more for the codes.
A quantized layer norm takes five passes. These kernels do all steps while the
row is in registers and fast memory.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import logical

# The number of rows processed together. It is also the width of a register.
_ROWS = 128
LARGEST = np.float32(127)
# Values below this become zeros, as in `quant.py`.
_NEGLIGIBLE = np.float32(1e-30)


class Codes(NamedTuple):
  """Quantized rows: values [M, K] int8 and scales [M, 1] float32."""

  values: jax.Array
  scale: jax.Array


def interpreted() -> bool:
  """Returns True if kernels run as plain operations, as in tests on CPU."""
  return logical.platform() != 'tpu'


def quantize(x: jax.Array, interpret: bool = False) -> Codes:
  """Quantizes rows like `quant.quantize_along(x, -1)`, on one device.

  Args:
    x: The rows, [M, K], of any float type.
    interpret: True to run plain operations, on any platform.
  """
  return _call(_quantize, x, (), interpret, 'quantize_rows')


def normalize(
  x: jax.Array,
  scale: jax.Array,
  bias: jax.Array | None,
  epsilon: float,
  interpret: bool = False,
) -> Codes:
  """Returns the layer norm or RMS norm of x, quantized as in `quantize`.

  Args:
    x: The rows, [M, K] float32.
    scale: The scale of the norm, [K] float32.
    bias: The bias of the layer norm, [K] float32; None for an RMS norm.
    epsilon: The number added to the variance or to the mean square.
    interpret: True to run plain operations, as in `quantize`.
  """
  if bias is None:
    body = functools.partial(_normalize_rms, epsilon)
    return _call(body, x, (scale[None],), interpret, 'normalize_rms_rows')
  body = functools.partial(_normalize, epsilon)
  norm = (scale[None], bias[None])
  return _call(body, x, norm, interpret, 'normalize_rows')


def _call(
  body: Callable,
  x: jax.Array,
  constants: tuple[jax.Array, ...],
  interpret: bool,
  name: str,
) -> Codes:
  """Runs `body` on blocks of rows; all blocks share `constants` [1, K]."""
  count, width = x.shape
  size = min(count, _ROWS)
  block = pl.BlockSpec((size, width), lambda i: (i, 0))
  shared = pl.BlockSpec((1, width), lambda i: (0, 0))
  codes, scale = pl.pallas_call(
    body,
    grid=(pl.cdiv(count, size),),
    in_specs=[block, *[shared for _ in constants]],
    out_specs=[block, pl.BlockSpec((1, size), lambda i: (0, i))],
    out_shape=[
      jax.ShapeDtypeStruct(x.shape, jnp.int8),
      jax.ShapeDtypeStruct((1, count), jnp.float32),
    ],
    compiler_params=pltpu.CompilerParams(dimension_semantics=('parallel',)),
    interpret=interpret,
    name=name,
  )(x, *constants)
  return Codes(codes, scale.reshape(-1, 1))


def _quantize(x, codes, scale) -> None:
  _write(x[...].astype(jnp.float32), codes, scale)


def _normalize(epsilon: float, x, norm_scale, norm_bias, codes, scale) -> None:
  rows = x[...]
  centred = rows - rows.mean(1, keepdims=True)
  variance = jnp.square(centred).mean(1, keepdims=True)
  normal = centred * jax.lax.rsqrt(variance + np.float32(epsilon))
  _write(normal * norm_scale[...] + norm_bias[...], codes, scale)


def _normalize_rms(epsilon: float, x, norm_scale, codes, scale) -> None:
  rows = x[...]
  mean_square = jnp.square(rows).mean(1, keepdims=True)
  normal = rows * jax.lax.rsqrt(mean_square + np.float32(epsilon))
  _write(normal * norm_scale[...], codes, scale)


def _write(rows: jax.Array, codes, scale) -> None:
  peak = jnp.abs(rows).max(1, keepdims=True)
  codes[...] = jnp.round(rows * inverse_scale(peak)).astype(jnp.int8)
  # The transposition turns a column of scales into a row of a register.
  column = jnp.broadcast_to(peak * (1 / LARGEST), (rows.shape[0], _ROWS))
  scale[...] = column.T[:1]


def quantized(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
  """Returns codes as float32, and the scale that values along `axis` share.

  Kernels call this function. Other code uses `quant.quantize_along`.
  """
  peak = jnp.abs(x).max(axis, keepdims=True)
  return jnp.round(x * inverse_scale(peak)), peak * (1 / LARGEST)


def inverse_scale(peak: jax.Array, largest: np.float32 = LARGEST) -> jax.Array:
  """Returns the factor that turns values into codes, by their largest one."""
  large = peak > _NEGLIGIBLE
  return jnp.where(large, largest / jnp.where(large, peak, 1), 0)


def product(x: Codes, values: jax.Array, scale: jax.Array) -> jax.Array:
  """Returns the product of quantized rows and an int8 matrix, [M, N] float32.

  Args:
    x: The rows, [M, K].
    values: The matrix, [N, K] int8.
    scale: The scales of the outputs, [N] float32.
  """
  sums = jax.lax.dot_general(
    x.values, values, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32
  )
  return sums.astype(jnp.float32) * (x.scale * scale)
