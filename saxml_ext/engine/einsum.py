"""The one matrix product of the engine.

Every weight and every KV array meets the activations here, so a new number
format is taught to this function alone.
"""

import jax
import jax.numpy as jnp

from saxml_ext.engine import quant


def einsum(
    spec: str, x: jax.Array, w: jax.Array | quant.QuantizedArray
) -> jax.Array:
  """einsum of activations `x` with `w`, computed in w's number format.

  Sums are float32, and so is the result. float32 operands ask for the highest
  precision: accelerators would otherwise round them to bfloat16 or TF32.

  A quantized `w` makes int8 of the activations too, each row of them (all that
  is contracted for one result) by its own scale. Their products are summed in
  int32, which is exact up to 133,000 summands.

  Args:
    spec: as of jnp.einsum; names w's dims in their order before quantization.
    x: activations.
    w: array, or weight quantized over the dims that `spec` contracts.

  Raises:
    ValueError: a quantized w shares a dim with both x and the result.
  """
  if isinstance(w, quant.QuantizedArray):
    return _quantized(spec, x, w)
  precision = jax.lax.Precision.HIGHEST if w.dtype == jnp.float32 else None
  return jnp.einsum(
      spec,
      x.astype(w.dtype),
      w,
      precision=precision,
      preferred_element_type=jnp.float32,
  )


def _quantized(spec: str, x: jax.Array, w: quant.QuantizedArray) -> jax.Array:
  x_dims, w_dims, out_dims = _dims(spec, x.ndim)
  contracted = [d for d in w_dims if d not in out_dims]
  outputs = [d for d in w_dims if d in out_dims]
  rows = [d for d in x_dims if d not in contracted]
  if set(outputs) & set(rows):
    raise ValueError(
        f"{spec!r} has batch dims {sorted(set(outputs) & set(rows))}; a"
        " quantized weight cannot have any. Leave it in float."
    )
  x = x.transpose([x_dims.index(d) for d in rows + contracted])
  row_shape = x.shape[: len(rows)]
  output_shape = w.scale.shape
  size = w.values.size // w.scale.size
  x, x_scale = quant.quantize_rows(x.astype(jnp.float32).reshape(-1, size))
  sums = _dot(x, w.values.reshape(-1, size))
  result = sums.astype(jnp.float32) * (x_scale[:, None] * w.scale.reshape(-1))
  result = result.reshape(row_shape + output_shape)
  have = rows + outputs
  return result.transpose([have.index(d) for d in out_dims])


def _dot(x: jax.Array, w: jax.Array) -> jax.Array:
  """Products [M, N] int32 of the rows of x [M, K] and w [N, K], both int8."""
  # XLA:CPU leaves a single row to a plain loop: 215 ms against 2 ms for two
  # rows, at K = 512 and N = 50,400.
  rows = jnp.concatenate([x, x]) if x.shape[0] == 1 else x
  return jax.lax.dot_general(
      rows,
      w,
      (((1,), (1,)), ((), ())),
      preferred_element_type=jnp.int32,
  )[: x.shape[0]]


def _dims(spec: str, x_rank: int) -> tuple[str, str, str]:
  """Names of the dims of x, w and the result, "..." of x spelled out."""
  terms, result = spec.split("->")
  x, w = terms.split(",")
  spelled = "".join(chr(ord("A") + i) for i in range(x_rank - len(x) + 3))
  return x.replace("...", spelled), w, result.replace("...", spelled)
