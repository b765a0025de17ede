"""The one matrix product of the engine.

Every weight and every KV array meets the activations here, so a new number
format is taught to this function alone.
"""

import jax
import jax.numpy as jnp

from saxml_ext.engine.kernels import cpu
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.numerics import quant

# More rows than a decode step usually has: they are of prompts.
_MANY_ROWS = 128


def einsum(
  spec: str,
  x: jax.Array,
  w: jax.Array | quant.QuantizedArray | quant.QuantizedRows,
  bias: jax.Array | None = None,
) -> jax.Array:
  """einsum of activations `x` with `w`, computed in w's number format.

  Sums are float32, and so is the result. float32 operands ask for the highest
  precision: accelerators would otherwise round them to bfloat16 or TF32.

  A quantized weight may make int8 of the activations too, each row of them
  (all that is contracted for one result) by its own scale. Their products are
  summed in int32, which is exact up to 133,000 summands. Products of many rows
  make integers of 15 bits instead on some processors, see `cpu.py`.

  Quantized KV is multiplied in bfloat16, which holds its codes exactly; on CPU
  in float32, which is faster there.

  Args:
    spec: as of jnp.einsum; names w's dims in their order before quantization.
    x: activations.
    w: array, or weight quantized over the dims that `spec` contracts, or KV.
    bias: float32, of the shape of the result's last dims; added to it.

  Raises:
    ValueError: a quantized weight shares a dim with both x and the result.
  """
  if isinstance(w, quant.QuantizedArray):
    return _weight(spec, x, w, bias)
  if isinstance(w, quant.QuantizedRows):
    result = _rows(spec, x, w)
  else:
    result = _product(spec, x, w)
  return result if bias is None else result + bias


def _product(spec: str, x: jax.Array, w: jax.Array) -> jax.Array:
  precision = jax.lax.Precision.HIGHEST if w.dtype == jnp.float32 else None
  return jnp.einsum(
    spec,
    x.astype(w.dtype),
    w,
    precision=precision,
    preferred_element_type=jnp.float32,
  )


def _weight(
  spec: str,
  x: jax.Array,
  w: quant.QuantizedArray,
  bias: jax.Array | None,
) -> jax.Array:
  x_dims, w_dims, out_dims = _dims(spec, x.ndim)
  contracted = [d for d in w_dims if d not in out_dims]
  outputs = [d for d in w_dims if d in out_dims]
  rows = [d for d in x_dims if d not in contracted]
  if set(outputs) & set(rows):
    raise ValueError(
      f'{spec!r} has batch dims {sorted(set(outputs) & set(rows))}; a'
      ' quantized weight cannot have any. Leave it in float.'
    )
  x = x.transpose([x_dims.index(d) for d in rows + contracted])
  row_shape = x.shape[: len(rows)]
  output_shape = w.scale.shape
  values, scale = w.values, w.scale.reshape(-1)
  size = values.shape[1]
  x = x.reshape(-1, size)
  if bias is None:
    bias = jnp.zeros(scale.shape)
  bias = bias.reshape(-1)

  def in_int8(x: jax.Array) -> jax.Array:
    x = quant.quantize_along(x.astype(jnp.float32), -1)
    sums = _dot(x.values, values).astype(jnp.float32)
    return sums * (x.scale * scale) + bias

  def by_kernel(x: jax.Array) -> jax.Array:
    fine = x.shape[0] > _MANY_ROWS and cpu.prefers_fine_prompts()
    planes = 2 if fine else 1
    return kernels.multiply(x.astype(jnp.float32), values, scale, bias, planes)

  def in_float(x: jax.Array, dtype: str) -> jax.Array:
    codes = _cast_beside(x, values, dtype)
    return _product('mk,nk->mn', x, codes) * scale + bias

  if w.activations is not None:
    result = in_float(x, w.activations)
  elif kernels.can_multiply():
    result = jax.lax.platform_dependent(x, cpu=by_kernel, default=in_int8)
  else:
    result = in_int8(x)
  result = result.reshape(row_shape + output_shape)
  have = rows + outputs
  return result.transpose([have.index(d) for d in out_dims])


def _rows(spec: str, x: jax.Array, w: quant.QuantizedRows) -> jax.Array:
  x_dims, w_dims, out_dims = _dims(spec, x.ndim)
  shared = w_dims[w.axis]
  # A scale belongs to what is left of w without the shared dim. Where that is
  # contracted it has to be multiplied before, else afterwards.
  dims = w_dims.replace(shared, '')
  compact = w.scale.ndim < w.values.ndim
  scale = w.scale if compact else w.scale.squeeze(w.axis)

  def scaled(y: jax.Array, y_dims: str) -> jax.Array:
    order = [dims.index(d) for d in y_dims if d in dims]
    shape = [n if d in dims else 1 for d, n in zip(y_dims, y.shape)]
    return y * scale.transpose(order).reshape(shape)

  def product(x: jax.Array) -> jax.Array:
    return jax.lax.platform_dependent(
      x,
      cpu=lambda x: _product(spec, x, _cast(w.values, 'float32')),
      default=lambda x: _product(spec, x, w.values.astype('bfloat16')),
    )

  if shared in out_dims:
    return product(scaled(x, x_dims))
  return scaled(product(x), out_dims)


def _cast(values: jax.Array, dtype: str) -> jax.Array:
  """int8 as another type, fused into the product that reads it if that pays.

  On CPU a fused cast takes the product off its fast path: 20 GFLOP/s at k = n
  = 4096, where the same product after a cast of its own makes 60 to 480.
  """
  cast = values.astype(dtype)
  return jax.lax.platform_dependent(
    cast, cpu=jax.lax.optimization_barrier, default=lambda x: x
  )


def _cast_beside(x: jax.Array, values: jax.Array, dtype: str) -> jax.Array:
  """`_cast` of weights that are multiplied with x [M, K], once x is there.

  On CPU XLA would cast the weights of all layers before it runs the first one:
  12 GB of bfloat16 for a GPT-J of 6 billion parameters. A branch that x decides
  on cannot be taken earlier. The other one, for NaN, only passes the NaN on.
  """

  def late(x: jax.Array, values: jax.Array) -> jax.Array:
    return jax.lax.cond(
      x[0, 0] == x[0, 0],
      lambda v: v.astype(dtype),
      lambda v: jnp.full(v.shape, jnp.nan, dtype),
      values,
    )

  return jax.lax.platform_dependent(
    x, values, cpu=late, default=lambda x, v: v.astype(dtype)
  )


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
  terms, result = spec.split('->')
  x, w = terms.split(',')
  spelled = ''.join(chr(ord('A') + i) for i in range(x_rank - len(x) + 3))
  return x.replace('...', spelled), w, result.replace('...', spelled)
