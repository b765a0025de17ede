"""Quantizes rows of activations on TPU in one pass over memory.

XLA makes one pass for each sum or maximum over a row, and one more for the
codes: five of a layer norm that is quantized, where a row's length lets all of
them be taken while it is in registers and fast memory.
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

# Rows handled together, which is the width of a register too.
_ROWS = 128
LARGEST = np.float32(127)
# As in `quant.py`: what is smaller becomes zeros.
_NEGLIGIBLE = np.float32(1e-30)


class Codes(NamedTuple):
  """Quantized rows: values [M, K] int8, scale [M, 1] float32."""

  values: jax.Array
  scale: jax.Array


def interpreted() -> bool:
  """Returns True if kernels run as plain operations: in tests, on CPU."""
  return logical.platform() != 'tpu'


def quantize(x: jax.Array, interpret: bool = False) -> Codes:
  """Quantizes rows as `quant.quantize_along(x, -1)`, on one device.

  Args:
    x: [M, K], of any float type.
    interpret: True to run plain operations, on any platform.
  """
  return _call(_quantize, x, (), interpret, 'quantize_rows')


def normalize(
  x: jax.Array,
  scale: jax.Array,
  bias: jax.Array,
  epsilon: float,
  interpret: bool = False,
) -> Codes:
  """Returns the layer norm of x, quantized as by `quantize`.

  Args:
    x: [M, K] float32.
    scale, bias: [K] float32.
    epsilon: The number added to the variance.
    interpret: True to run plain operations, as in `quantize`.
  """
  body = functools.partial(_normalize, epsilon)
  norm = (scale[None], bias[None])
  return _call(body, x, norm, interpret, 'normalize_rows')


def _call(
  body: Callable,
  x: jax.Array,
  others: tuple[jax.Array, ...],
  interpret: bool,
  name: str,
) -> Codes:
  """Runs `body` on blocks of rows; `others` [1, K] are for all of them."""
  count, width = x.shape
  size = min(count, _ROWS)
  block = pl.BlockSpec((size, width), lambda i: (i, 0))
  shared = pl.BlockSpec((1, width), lambda i: (0, 0))
  codes, scale = pl.pallas_call(
    body,
    grid=(pl.cdiv(count, size),),
    in_specs=[block, *[shared for _ in others]],
    out_specs=[block, pl.BlockSpec((1, size), lambda i: (0, i))],
    out_shape=[
      jax.ShapeDtypeStruct(x.shape, jnp.int8),
      jax.ShapeDtypeStruct((1, count), jnp.float32),
    ],
    compiler_params=pltpu.CompilerParams(dimension_semantics=('parallel',)),
    interpret=interpret,
    name=name,
  )(x, *others)
  return Codes(codes, scale.reshape(-1, 1))


def _quantize(x, codes, scale) -> None:
  _write(x[...].astype(jnp.float32), codes, scale)


def _normalize(epsilon: float, x, norm_scale, norm_bias, codes, scale) -> None:
  rows = x[...]
  centred = rows - rows.mean(1, keepdims=True)
  variance = jnp.square(centred).mean(1, keepdims=True)
  normal = centred * jax.lax.rsqrt(variance + np.float32(epsilon))
  _write(normal * norm_scale[...] + norm_bias[...], codes, scale)


def _write(rows: jax.Array, codes, scale) -> None:
  peak = jnp.abs(rows).max(1, keepdims=True)
  codes[...] = jnp.round(rows * _inverse_scale(peak)).astype(jnp.int8)
  # A column of a register, put in a row of one.
  column = jnp.broadcast_to(peak * (1 / LARGEST), (rows.shape[0], _ROWS))
  scale[...] = column.T[:1]


def quantized(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
  """Returns codes, as float32, and the scale that those along `axis` share.

  A kernel calls it; `quant.quantize_along` does the same elsewhere.
  """
  peak = jnp.abs(x).max(axis, keepdims=True)
  return jnp.round(x * _inverse_scale(peak)), peak * (1 / LARGEST)


def _inverse_scale(peak: jax.Array) -> jax.Array:
  large = peak > _NEGLIGIBLE
  return jnp.where(large, LARGEST / jnp.where(large, peak, 1), 0)


def product(x: Codes, values: jax.Array, scale: jax.Array) -> jax.Array:
  """Returns [M, N] float32 of x [M, K] and a matrix [N, K], its scale [N]."""
  sums = jax.lax.dot_general(
    x.values,
    values,
    (((1,), (1,)), ((), ())),
    preferred_element_type=jnp.int32,
  )
  return sums.astype(jnp.float32) * (x.scale * scale)
