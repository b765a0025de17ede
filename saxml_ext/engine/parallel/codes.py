"""Rows of activations that are quantized on TPU, and their products."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.kernels.tpu import rows
from saxml_ext.engine.kernels.tpu import target


class Codes(NamedTuple):
  """Quantized rows: values [M, D] int8, scale [M, 1] float32."""

  values: jax.Array
  scale: jax.Array


def normalized(x: jax.Array, norm: weights_lib.Norm, epsilon: float) -> Codes:
  """Returns the layer norm of x [M, D], quantized."""
  return Codes(
    *rows.normalize(x, norm.scale, norm.bias, epsilon, interpreted())
  )


def quantized(x: jax.Array) -> Codes:
  """Returns x [M, D], quantized."""
  return Codes(*rows.quantize(x, interpreted()))


def interpreted() -> bool:
  """Returns True if kernels run as plain operations: in tests, on CPU."""
  return target.platform() != 'tpu'


def product(x: Codes, values: jax.Array, scale: jax.Array) -> jax.Array:
  """Returns [M, N] float32 of x [M, K] and a matrix [N, K], its scale [N]."""
  sums = jax.lax.dot_general(
    x.values,
    values,
    (((1,), (1,)), ((), ())),
    preferred_element_type=jnp.int32,
  )
  return sums.astype(jnp.float32) * (x.scale * scale)
