"""Multiplies activations with the int4 weights of `int4.py`.

It is apart from the format, which `weights.py` needs without kernels.
"""

import jax
import jax.numpy as jnp

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.numerics import int4
from saxml_ext.engine.numerics import quant


def multiply(
  x: jax.Array, w: quant.QuantizedArray, bias: jax.Array
) -> jax.Array:
  """Returns products [M, N] float32 of activations [M, K] with int4 weights.

  Args:
    x: The activations. The kernel quantizes each group of them to int8.
    w: The weights.
    bias: The bias to add, [N] float32.
  """
  scale = w.scale.reshape(-1)
  stacked, layer = layers_lib.stacked_of(w.values)

  def by_kernel(x: jax.Array) -> jax.Array:
    result = jax.ShapeDtypeStruct((len(x), len(scale)), jnp.float32)
    call = jax.ffi.ffi_call('saxml_multiply_int4', result)
    return call(x.astype(jnp.float32), stacked, scale, bias, jnp.int32(layer))

  def by_xla(x: jax.Array) -> jax.Array:
    weights = int4.dequantized(layers_lib.array_of(w.values), len(scale))
    product = jnp.einsum(
      'mk,nk->mn',
      x.astype(jnp.float32),
      weights,
      precision=jax.lax.Precision.HIGHEST,
    )
    return product * scale + bias

  if not (kernels.has_int8_dots() and kernels.usable()):
    return by_xla(x)
  return jax.lax.platform_dependent(x, cpu=by_kernel, default=by_xla)
