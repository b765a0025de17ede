"""The one matrix product of the engine.

Every weight and every KV array meets the activations here, so a new number
format (int8 weights, for example) is taught to this function alone.
"""

import jax
import jax.numpy as jnp


def einsum(spec: str, x: jax.Array, w: jax.Array) -> jax.Array:
  """einsum of activations `x` with `w`, computed in w's dtype.

  Sums are float32, and so is the result. float32 operands ask for the highest
  precision: accelerators would otherwise round them to bfloat16 or TF32.
  """
  precision = jax.lax.Precision.HIGHEST if w.dtype == jnp.float32 else None
  return jnp.einsum(
      spec,
      x.astype(w.dtype),
      w,
      precision=precision,
      preferred_element_type=jnp.float32,
  )
