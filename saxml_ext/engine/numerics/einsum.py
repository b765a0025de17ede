"""Defines the single matrix product of the engine.

Every weight and every KV array is multiplied with activations here. So a new
number format requires changes in this function only.
"""

from collections.abc import Iterator
import contextlib
import contextvars
import functools
import math
from typing import TypeGuard

import jax
import jax.numpy as jnp

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.numerics import int4_product
from saxml_ext.engine.numerics import matrix_form
from saxml_ext.engine.numerics import quant

# A product of more rows than this belongs to prompts, unless it is marked as
# part of a decode step.
_MANY_ROWS = 128
# True while a decode step is being traced; see `decoding`.
_decoding = contextvars.ContextVar('decoding', default=False)
# Up to this number of rows, the kernel is faster than XLA, by type of weights. It
# takes as long as reading them, and XLA for CPU converts bfloat16 first.
_FEW_ROWS = {'float32': 16, 'bfloat16': 64}


def einsum(
  spec: str,
  x: jax.Array,
  w: jax.Array | layers_lib.Slice | quant.QuantizedArray | quant.QuantizedRows,
  bias: jax.Array | None = None,
) -> jax.Array:
  """Computes an einsum of activations `x` with `w`, in w's number format.

  Sums and results are float32. float32 operands request the highest precision,
  because accelerators would otherwise round them to bfloat16 or TF32. Weights in
  bfloat16 round the activations to bfloat16. On CPUs without instructions for
  that, activations stay float32, so rounded weights are the only loss.

  A quantized weight may also quantize the activations to its type. Each row (all
  values that are contracted for one result) has its own scale. The products of
  int8 are summed in int32, which is exact for up to 133,000 summands. On some processors
  the activations of prompts are quantized to 15 bits instead, see
  `kernels.prefers_fine_prompts`. int4 weights are described in `int4.py`.

  Quantized KV is multiplied in bfloat16, which represents its codes exactly. On
  CPU it is multiplied in float32, which is faster there.

  Args:
    spec: The spec of jnp.einsum. It names w's dimensions in their order before
      quantization.
    x: The activations.
    w: The weight or KV array. A quantized weight has scales over the dimensions
      that `spec` contracts.
    bias: The bias to add, float32, with the shape of the result's last
      dimensions.

  Raises:
    ValueError: A quantized weight shares a dimension with both x and the
      result.
  """
  if isinstance(w, quant.QuantizedArray):
    return _weight(spec, x, w, bias)
  if isinstance(w, quant.QuantizedRows):
    result = _rows(spec, x, w)
  elif (few := _few_rows(spec, x, w, bias)) is not None:
    return few
  else:
    result = _many_rows(spec, x, layers_lib.array_of(w))
  return result if bias is None else result + bias


def silu_gated(
  spec: str,
  x: jax.Array,
  gate: jax.Array | quant.QuantizedArray,
  up: jax.Array | quant.QuantizedArray,
  up_bias: jax.Array | None = None,
) -> jax.Array:
  """Computes silu of one einsum of `x`, multiplied by another.

  Args:
    spec: The spec of both, as in `einsum`.
    x: The activations.
    gate: The weight of the einsum that silu is applied to.
    up: The other weight, with the same shape.
    up_bias: The bias to add to the product with `up`, or None.
  """

  def by_einsums(x: jax.Array) -> jax.Array:
    gates = jax.nn.silu(einsum(spec, x, gate))
    return gates * einsum(spec, x, up, up_bias)

  if not (multiplied_by_kernel(gate) and multiplied_by_kernel(up)):
    return by_einsums(x)
  form = matrix_form.from_einsum(spec, x)

  def by_kernel(x: jax.Array) -> jax.Array:
    rows = form.matrix(x).astype(jnp.float32)
    stacked, layer = _operands(gate)
    gated = kernels.multiply_gated(
      rows, stacked, _operands(up, up_bias)[0], _planes(rows, up), layer
    )
    return form.result(gated, up.scale.shape)

  return jax.lax.platform_dependent(x, cpu=by_kernel, default=by_einsums)


def multiplied_by_kernel(
  w: jax.Array | quant.QuantizedArray | None,
) -> TypeGuard[quant.QuantizedArray]:
  """Returns True if products with a weight use the int8 kernel on a CPU."""
  return (
    isinstance(w, quant.QuantizedArray)
    and w.activations in (None, quant.FINE)
    and kernels.can_multiply(2 if w.activations == quant.FINE else 1)
  )


def likeliest(
  spec: str, x: jax.Array, w: quant.QuantizedArray, bias: jax.Array, count: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Finds the largest results of an einsum along its last dimension.

  Args:
    spec: The spec, as in `einsum`. The last dimension of the result is w's
      only one that is not contracted.
    x: The activations.
    w: The weight, for which `multiplied_by_kernel` is True.
    bias: The bias to add, float32.
    count: The number of results to find, C.

  Returns:
    The results of `kernels.multiply_likeliest`. The first two have the
    dimensions of x that are not contracted, and the others C in addition.
  """
  form = matrix_form.from_einsum(spec, x)
  rows = form.matrix(x).astype(jnp.float32)
  results = kernels.multiply_likeliest(
    rows, *_operands(w, bias)[0], count, _planes(rows, w)
  )
  return tuple(y.reshape(form.row_shape + y.shape[1:]) for y in results)


@contextlib.contextmanager
def decoding() -> Iterator[None]:
  """Marks the code traced in this context as a decode step.

  Wide beams have as many rows as prompts, but are no more sensitive to rounding
  than narrow ones. So they do not need the extra precision that prompts get on
  some processors at twice the cost.
  """
  token = _decoding.set(True)
  try:
    yield
  finally:
    _decoding.reset(token)


def _product(spec: str, x: jax.Array, w: jax.Array) -> jax.Array:
  precision = jax.lax.Precision.HIGHEST if w.dtype == jnp.float32 else None
  return jnp.einsum(
    spec,
    x.astype(w.dtype),
    w,
    precision=precision,
    preferred_element_type=jnp.float32,
  )


def _many_rows(spec: str, x: jax.Array, w: jax.Array) -> jax.Array:
  """Returns the product with a weight or KV in float, by XLA."""
  form = matrix_form.from_einsum(spec, x)
  if (
    w.dtype != jnp.bfloat16
    or kernels.has_bfloat16_products()
    or not kernels.usable()
    or set(form.outputs) & set(form.rows)  # KV.
  ):
    return _product(spec, x, w)
  return jax.lax.platform_dependent(
    x,
    w,
    cpu=lambda x, w: _product(spec, x, _cast_beside(x, w, 'float32')),
    default=functools.partial(_product, spec),
  )


def _weight(
  spec: str, x: jax.Array, w: quant.QuantizedArray, bias: jax.Array | None
) -> jax.Array:
  form = matrix_form.from_einsum(spec, x)
  if shared := set(form.outputs) & set(form.rows):
    raise ValueError(
      f'{spec!r} has batch dims {sorted(shared)}, which a quantized weight'
      ' cannot have. Leave it in float.'
    )
  (values, layer), scale = layers_lib.stacked_of(w.values), w.scale.reshape(-1)
  x = form.matrix(x)
  bias = _row(bias, scale)
  if w.activations == quant.INT4:
    return form.result(int4_product.multiply(x, w, bias), w.scale.shape)

  def in_codes(x: jax.Array) -> jax.Array:
    x = quant.quantize_along(x.astype(jnp.float32), -1, w.values.dtype)
    codes = layers_lib.array_of(w.values)
    sums = _dot(x.values, codes).astype(jnp.float32)
    return sums * (x.scale * scale) + bias

  def by_kernel(x: jax.Array) -> jax.Array:
    x = x.astype(jnp.float32)
    return kernels.multiply(x, values, scale, bias, _planes(x, w), layer)

  def in_float(x: jax.Array, dtype: str) -> jax.Array:
    codes = _cast_beside(x, layers_lib.array_of(w.values), dtype)
    return _product('mk,nk->mn', x, codes) * scale + bias

  if w.activations is None or w.activations == quant.FP8:
    default = in_codes
  else:
    is_fine = w.activations == quant.FINE
    default = functools.partial(
      in_float, dtype='float32' if is_fine else w.activations
    )
  if multiplied_by_kernel(w):
    result = jax.lax.platform_dependent(x, cpu=by_kernel, default=default)
  else:
    result = default(x)
  return form.result(result, w.scale.shape)


def _operands(
  w: quant.QuantizedArray, bias: jax.Array | None = None
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array | int]:
  """Returns the operands of a kernel, and the layer to read.

  The operands are the codes [N, K], or [L, N, K] of all layers, the scales [N]
  and the bias [N].
  """
  scale = w.scale.reshape(-1)
  values, layer = layers_lib.stacked_of(w.values)
  return (values, scale, _row(bias, scale)), layer


def _row(bias: jax.Array | None, scale: jax.Array) -> jax.Array:
  """Returns a bias [N] beside scales [N]."""
  return jnp.zeros(scale.shape) if bias is None else bias.reshape(-1)


def _planes(x: jax.Array, w: quant.QuantizedArray) -> int:
  """Returns the number of planes of int8 for activations [M, K]."""
  if w.activations == quant.FINE:
    return 2
  is_prompt = x.shape[0] > _MANY_ROWS and not _decoding.get()
  return 2 if is_prompt and kernels.prefers_fine_prompts() else 1


def _few_rows(
  spec: str,
  x: jax.Array,
  w: jax.Array | layers_lib.Slice,
  bias: jax.Array | None,
) -> jax.Array | None:
  """Returns the product of few rows with a weight, or None for XLA.

  Activations stay float32, also beside weights in bfloat16.
  """
  form = matrix_form.from_einsum(spec, x)
  outputs_first = form.weight == form.outputs + form.contracted
  whole = outputs_first or form.weight == form.contracted + form.outputs
  is_kv = bool(set(form.outputs) & set(form.rows))
  few = math.prod(form.row_shape) <= _FEW_ROWS.get(str(w.dtype), 0)
  if is_kv or not whole or not few or not kernels.usable():
    return None
  sizes = dict(zip(form.weight, w.shape))
  output_shape = tuple(sizes[d] for d in form.outputs)
  outputs = math.prod(output_shape)
  size = math.prod(w.shape) // outputs
  stacked, layer = layers_lib.stacked_of(w)
  matrix = stacked.reshape(
    *stacked.shape[: stacked.ndim - len(w.shape)],
    *((outputs, size) if outputs_first else (size, outputs)),
  )

  def by_kernel(x: jax.Array, matrix: jax.Array) -> jax.Array:
    added = jnp.zeros(output_shape) if bias is None else bias
    return form.result(
      kernels.multiply_floats(
        form.matrix(x).astype(jnp.float32),
        matrix,
        added.reshape(-1),
        outputs_first,
        layer,
      ),
      output_shape,
    )

  def by_xla(x: jax.Array, matrix: jax.Array) -> jax.Array:
    whole = matrix.reshape(stacked.shape)
    if isinstance(w, layers_lib.Slice):
      whole = layers_lib.slice_of(whole, layer)
    result = _product(spec, x, whole)
    return result if bias is None else result + bias

  return jax.lax.platform_dependent(x, matrix, cpu=by_kernel, default=by_xla)


def _rows(spec: str, x: jax.Array, w: quant.QuantizedRows) -> jax.Array:
  x_dims, w_dims, out_dims = matrix_form.dims(spec, x.ndim)
  shared = w_dims[w.axis]
  # The scale has the dimensions of w except the shared one. If the result has
  # the shared dimension, the others are contracted, and the scale multiplies x.
  # Otherwise it multiplies the result.
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
  """Converts int8 values, fused into the product if that is faster.

  On CPU a fused conversion takes the product off its fast path. At k = n = 4096
  the fused product runs at 20 GFLOP/s. With a separate conversion it runs at 60
  to 480 GFLOP/s.
  """
  cast = values.astype(dtype)
  return jax.lax.platform_dependent(
    cast, cpu=jax.lax.optimization_barrier, default=lambda x: x
  )


def _cast_beside(x: jax.Array, values: jax.Array, dtype: str) -> jax.Array:
  """Converts weights like `_cast`, but only after the activations are ready.

  Otherwise XLA for CPU would convert the weights of all layers before it runs
  the first one. They take 12 GB in bfloat16 for a GPT-J of 6 billion
  parameters. A branch that depends on x cannot run earlier. The other branch,
  for NaN, only passes the NaN on.
  """

  def late(x: jax.Array, values: jax.Array) -> jax.Array:
    first = x[(0,) * x.ndim]
    return jax.lax.cond(
      first == first,
      lambda v: v.astype(dtype),
      lambda v: jnp.full(v.shape, jnp.nan, dtype),
      values,
    )

  return jax.lax.platform_dependent(
    x, values, cpu=late, default=lambda x, v: v.astype(dtype)
  )


def _dot(x: jax.Array, w: jax.Array) -> jax.Array:
  """Returns the products [M, N] of the rows of codes x [M, K] and w [N, K]."""
  # XLA for CPU computes a single row with a plain loop. At K = 512 and N =
  # 50,400 this takes 215 ms, but two rows take 2 ms.
  rows = jnp.concatenate([x, x]) if x.shape[0] == 1 else x
  return jax.lax.dot_general(
    rows,
    w,
    (((1,), (1,)), ((), ())),
    preferred_element_type=jnp.int32 if w.dtype == jnp.int8 else jnp.float32,
  )[: x.shape[0]]
