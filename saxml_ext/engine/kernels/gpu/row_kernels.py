"""Combines the results of products on GPUs, with one kernel for each use.

XLA would compute a norm, a quantization or a rotation of products with two to
four kernels. In a decode step, which has few rows, a kernel takes less time
than its launch.
"""

from collections.abc import Callable, Sequence
import functools
from typing import Any, NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels.gpu import decode_kernel
from saxml_ext.engine.kernels.tpu import decode_kernel as tpu_kernel
from saxml_ext.engine.kernels.tpu import rows as tpu_rows

KV = tpu_kernel.KV

# The number of columns for each warp of threads.
_COLUMNS_PER_WARP = 256
_MOST_WARPS = 16


class Sums(NamedTuple):
  """The products of rows with matrices, in parts that are not yet added.

  A product is the sum of its parts, times both scales, plus the bias.

  Attributes:
    parts: The products of each part of the contracted dimension, [P, M, N]
      float32 or int32. The matrices have the same number of columns in it.
    row_scale: The scales of the rows, [M] float32; None if they are floats.
    scales: The scales of each matrix's columns, float32; none if the rows are
      floats.
    biases: The bias of each matrix, float32 or None.
  """

  parts: jax.Array
  row_scale: jax.Array | None
  scales: tuple[jax.Array, ...]
  biases: tuple[jax.Array | None, ...]

  def values(self) -> list[jax.Array]:
    """Returns the product with each matrix, [M, N / matrices] float32."""
    sums = self.parts.sum(0).astype(jnp.float32)
    values = jnp.split(sums, len(self.biases), 1)
    if self.row_scale is not None:
      rows = self.row_scale[:, None]
      values = [v * (rows * s) for v, s in zip(values, self.scales)]
    return [v if b is None else v + b for v, b in zip(values, self.biases)]


class _Columns(NamedTuple):
  """The columns of arrays that a kernel reads or writes.

  Attributes:
    index: The indices, [C] int32.
    mask: The mask of the columns that exist, [C] bool, or None if all do.
  """

  index: jax.Array
  mask: jax.Array | None = None

  @classmethod
  def whole(cls, width: int) -> '_Columns':
    """Returns all columns; their number is rounded up for Triton."""
    index = jnp.arange(decode_kernel.power(width))
    return cls(index, None if index.size == width else index < width)

  def after(self, begin: jax.Array | int) -> '_Columns':
    return self._replace(index=self.index + begin)


def _load(ref, columns: _Columns, *index) -> jax.Array:
  return triton.load(
    ref.at[(*index, columns.index)],
    mask=columns.mask,
    other=None if columns.mask is None else 0,
  )


def _store(ref, columns: _Columns, value: jax.Array, *index) -> None:
  value = value.astype(ref.dtype)
  triton.store(ref.at[(*index, columns.index)], value, mask=columns.mask)


def _product(
  product: Sums,
  row: jax.Array,
  columns: _Columns,
  matrix: int = 0,
) -> jax.Array:
  """Returns part of a row of a product with a matrix; reads references."""
  count, _, width = product.parts.shape
  first = matrix * (width // len(product.biases))
  parts, mask = jnp.arange(count)[:, None], columns.mask
  value = triton.load(
    product.parts.at[parts, row, columns.after(first).index[None]],
    mask=None if mask is None else jnp.broadcast_to(mask, (count, mask.size)),
    other=None if mask is None else 0,
  ).sum(0)
  if product.row_scale is not None:
    scale = _load(product.scales[matrix], columns)
    value = value.astype(jnp.float32) * (product.row_scale[row] * scale)
  bias = product.biases[matrix]
  return value if bias is None else value + _load(bias, columns)


def _write(columns: _Columns, value: jax.Array, index, out, *scale) -> None:
  """Stores a row, quantized if there is an array of scales."""
  if not scale:
    return _store(out, columns, value, *index)
  peak = jnp.abs(value).max()
  info = jnp.iinfo if out.dtype == jnp.int8 else jnp.finfo
  largest = np.float32(info(out.dtype).max)
  codes = value * tpu_rows.inverse_scale(peak, largest)
  if out.dtype == jnp.int8:
    # Pallas for GPUs cannot round to the nearest even number.
    nearest = jnp.floor(codes + 0.5)
    odd = nearest - 2 * jnp.floor(nearest * 0.5)
    codes = nearest - jnp.where(nearest - codes == 0.5, odd, 0)
  _store(out, columns, codes, *index)
  scale[0][tuple(index)] = peak * (1 / largest)


def add_and_normalize(
  x: jax.Array,
  products: Sequence[Sums],
  norm: tuple[jax.Array, jax.Array | None],
  epsilon: float,
  dtype: jnp.dtype,
  interpret: bool = False,
) -> tuple[jax.Array, jax.Array | tpu_rows.Codes]:
  """Adds products to the residual, and normalizes the result.

  Args:
    x: The residual, [M, D], of any float type.
    products: The products to add, with one matrix each.
    norm: The scale and the bias [D] of a layer norm. Without a bias, it is an
      RMS norm.
    epsilon: The number added to the variance or to the mean square.
    dtype: The type of the normalized rows; int8 and fp8 quantize them.
    interpret: True to run the kernel as plain operations, on any platform.

  Returns:
    The next residual, [M, D] float32, and the normalized rows.
  """
  width = x.shape[1]

  def body(row, columns, x, products, norm, residual, *normal) -> None:
    value = _load(x, columns, row).astype(jnp.float32)
    for product in products:
      value += _product(product, row, columns)
    _store(residual, columns, value, row)
    scale, bias = norm
    if bias is not None:
      value -= value.sum() / width
      if columns.mask is not None:
        value = jnp.where(columns.mask, value, 0)
    mean_square = (value * value).sum() / width
    value *= jax.lax.rsqrt(mean_square + np.float32(epsilon))
    value *= _load(scale, columns)
    if bias is not None:
      value += _load(bias, columns)
    _write(columns, value, (row,), *normal)

  residual = jax.ShapeDtypeStruct(x.shape, jnp.float32)
  x, *normal = _by_row(
    body,
    (x, tuple(products), norm),
    (residual, *_outputs(x.shape, dtype)),
    interpret,
    'add_and_normalize',
  )
  return x, normal[0] if len(normal) == 1 else tpu_rows.Codes(*normal)


def quantize(
  function: Callable[..., jax.Array],
  product: Sums,
  dtype: jnp.dtype,
  interpret: bool = False,
) -> tpu_rows.Codes:
  """Returns the quantized rows of a function of products.

  Args:
    function: The function of the products with each matrix.
    product: The products.
    dtype: The type of the codes.
    interpret: True to run the kernel as plain operations, on any platform.
  """
  _, rows, width = product.parts.shape
  matrices = len(product.biases)

  def body(row, columns, product, *codes) -> None:
    values = [_product(product, row, columns, i) for i in range(matrices)]
    _write(columns, function(*values), (row,), *codes)

  outputs = _outputs((rows, width // matrices), dtype)
  return tpu_rows.Codes(
    *_by_row(body, (product,), outputs, interpret, 'quantize_rows')
  )


def _outputs(
  shape: tuple[int, ...], dtype: jnp.dtype
) -> tuple[jax.ShapeDtypeStruct, ...]:
  """Returns the shapes of normalized rows, or of codes and scales."""
  rows = jax.ShapeDtypeStruct(shape, dtype)
  if jnp.dtype(dtype).itemsize > 1:
    return (rows,)
  return rows, jax.ShapeDtypeStruct(shape[:1], jnp.float32)


def _by_row(
  body: Callable[..., None],
  args: tuple[Any, ...],
  outputs: tuple[jax.ShapeDtypeStruct, ...],
  interpret: bool,
  name: str,
) -> Sequence[jax.Array]:
  """Runs `body` for each row; it gets the row and all columns."""
  rows, width = outputs[0].shape

  def kernel(*refs) -> None:
    body(pl.program_id(0), _Columns.whole(width), *refs)

  warps = decode_kernel.power(pl.cdiv(width, _COLUMNS_PER_WARP))
  return pl.pallas_call(
    kernel,
    grid=(rows,),
    out_shape=outputs,
    compiler_params=triton.CompilerParams(
      num_warps=min(_MOST_WARPS, warps), num_stages=1
    ),
    interpret=interpret,
    name=name,
  )(*args)


def write_step(
  product: Sums,
  rotations: tuple[jax.Array, jax.Array],
  shape: tuple[int, int],
  at: jax.Array,
  slots: jax.Array,
  current: KV,
  factor: float = 1,
  interpret: bool = False,
) -> tuple[jax.Array, KV]:
  """Rotates queries and keys, and writes keys and values to a suffix block.

  Args:
    product: The product with qkv. Row c * K + k is beam k of slot c, and the
      columns are [N, G + 2, H].
    rotations: The sines and cosines of each slot, [C, rotary_dim / 2].
    shape: The numbers of beams and of heads, K and N.
    at: The row of beam 0 in the block, [] int32.
    slots: The positions of the slots in the block, [C] int32.
    current: The KV of one layer of the block, [S, N, T, H].
    factor: The factor of queries.
    interpret: True to run the kernel as plain operations, on any platform.

  Returns:
    The queries [C, N, K * G, H] float32, as in `attention.folded`, and the KV
    with the step written. The other slots are not changed.
  """
  beams, heads = shape
  width = current.values[0].shape[-1]
  group = product.parts.shape[-1] // (heads * width) - 2
  sin, cos = rotations
  half = sin.shape[-1]
  rest = ((0, 0), (0, width - 2 * half))
  sin = jnp.pad(jnp.concatenate([-sin, sin], 1), rest)
  cos = jnp.pad(jnp.concatenate([cos, cos], 1), rest, constant_values=1)
  inputs = (product, sin, cos, at[None], slots)
  first = len(jax.tree.leaves(inputs))
  blocks = range(len(jax.tree.leaves(current)))
  queries = (slots.size, heads, beams * group, width)
  return pl.pallas_call(
    functools.partial(_write_head, half, beams, group, factor),
    grid=(slots.size * beams, heads, group + 2),
    out_shape=(
      jax.ShapeDtypeStruct(queries, jnp.float32),
      jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), current),
    ),
    input_output_aliases={first + i: 1 + i for i in blocks},
    compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
    interpret=interpret,
    name='write_step',
  )(*inputs, current)


def _write_head(
  half: int,
  beams: int,
  group: int,
  factor: float,
  product: Sums,
  sin,
  cos,
  at,
  slots,
  before: KV,
  queries,
  current: KV,
) -> None:
  """Writes one query, or the key or the value, of a row and a head."""
  del before  # It has the memory of `current`.
  row, head, member = map(pl.program_id, range(3))
  slot, beam = row // beams, row % beams
  width = queries.shape[-1]
  columns = _Columns.whole(width)
  # The other member of each rotated pair.
  j = columns.index
  pair = jnp.where(j < half, j + half, jnp.where(j < 2 * half, j - half, 0))
  first = (head * (group + 2) + member) * width
  value = _product(product, row, columns.after(first))
  other = _product(product, row, _Columns(pair).after(first))
  turned = value * _load(cos, columns, slot) + other * _load(sin, columns, slot)

  @pl.when(member < group)
  def _():
    query = turned * np.float32(factor)
    _store(queries, columns, query, slot, head, beam * group + member)

  index = (slots[slot], head, at[0] + beam)
  pl.when(member == group)(
    lambda: _write(columns, turned, index, *current.keys)
  )
  pl.when(member == group + 1)(
    lambda: _write(columns, value, index, *current.values)
  )
