"""Rotates, quantizes and attends to prompts in a single kernel.

XLA takes about 30 passes over the products of `qkv` for this. Most of them only
reorder data, and they take half of a layer's time at 1,024 tokens. JAX's own
kernels (flash_attention, splash_attention) need queries, keys and values in
separate arrays, head by head and already rotated. They do not support int8
keys.

This kernel reads a chunk of C tokens of one head in the layout of the product,
[C, 3 * H]. It rotates and quantizes the keys and values as the cache stores
them. They stay in fast memory for the later chunks. The queries of the chunk
then attend to all chunks so far, with a running softmax.
"""

import functools
from typing import NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import logical
from saxml_ext.engine.kernels.tpu import rows

# The maximum number of tokens in a chunk. A chunk is a multiple of TILE.
_CHUNK = 512
_MASKED = np.float32(-1e30)


class Attended(NamedTuple):
  """The result of `attend`.

  Attributes:
    mixed: The values weighted by attention, [B, T, N * H] bfloat16.
    keys: The keys, [B, N, H, T] int8 or bfloat16.
    values: The values, [B, N, T, H] int8 or bfloat16.
    key_scale: The scales of int8 keys, [B, N, 1, T] float32.
    value_scale: The scales of int8 values, [B, N, 1, T] float32.
  """

  mixed: jax.Array
  keys: jax.Array
  values: jax.Array
  key_scale: jax.Array | None = None
  value_scale: jax.Array | None = None


def fits(head_dim: int, kv_dtype: str) -> bool:
  """Returns True if `attend` supports this width of heads and type of KV."""
  return head_dim % logical.TILE == 0 and kv_dtype in ('int8', 'bfloat16')


def attend(
  qkv: jax.Array,
  sin: np.ndarray,
  cos: np.ndarray,
  head_dim: int,
  kv_dtype: str,
  interpret: bool = False,
) -> Attended:
  """Computes causal attention of prompts on one device.

  Args:
    qkv: The products, not rotated, [B, T, N * 3 * H] bfloat16. T is a multiple
      of TILE.
    sin: The sines of `rotary.table`, [T, rotary_dim / 2]. If H is
      more than 128, rotary_dim is at most 128.
    cos: The cosines of the same table.
    head_dim: The width of a head, H.
    kv_dtype: The number format of KV, "int8" or "bfloat16".
    interpret: True to run the kernel as plain operations, on any platform.
  """
  batch, length, size = qkv.shape
  heads = size // (3 * head_dim)
  chunk = _chunk(length)
  tables = _tables(sin, cos, min(head_dim, logical.TILE))
  quantized = kv_dtype == 'int8'
  dtype = jnp.dtype(kv_dtype)
  chunks = length // chunk

  def struct(shape: tuple[int, ...], dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)

  out_shapes = [
    struct((batch, length, heads * head_dim), jnp.bfloat16),
    struct((batch, heads, head_dim, length), dtype),
    struct((batch, heads, length, head_dim), dtype),
  ]
  out_specs = [
    pl.BlockSpec((1, chunk, head_dim), lambda b, n, i: (b, i, n)),
    pl.BlockSpec((1, 1, head_dim, chunk), lambda b, n, i: (b, n, 0, i)),
    pl.BlockSpec((1, 1, chunk, head_dim), lambda b, n, i: (b, n, i, 0)),
  ]
  if quantized:
    row = pl.BlockSpec((1, 1, 1, chunk), lambda b, n, i: (b, n, 0, i))
    out_shapes += 2 * [struct((batch, heads, 1, length), jnp.float32)]
    out_specs += [row, row]
  table = pl.BlockSpec((3, chunk, tables.shape[-1]), lambda b, n, i: (0, i, 0))
  results = pl.pallas_call(
    functools.partial(_kernel, chunk, head_dim, sin.shape[1], quantized),
    grid=(batch, heads, chunks),
    in_specs=[
      pl.BlockSpec((1, chunk, 3 * head_dim), lambda b, n, i: (b, i, n)),
      table,
    ],
    out_specs=out_specs,
    out_shape=out_shapes,
    scratch_shapes=[
      pltpu.VMEM((chunks, head_dim, chunk), jnp.bfloat16),
      pltpu.VMEM((chunks, chunk, head_dim), jnp.bfloat16),
      pltpu.VMEM((chunks, 1, chunk), jnp.float32),
      pltpu.VMEM((chunks, 1, chunk), jnp.float32),
    ],
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('parallel', 'parallel', 'arbitrary')
    ),
    interpret=interpret,
    name='prefill_attention',
  )(qkv, tables)
  return Attended(*results)


def _chunk(length: int) -> int:
  """Returns the largest multiple of TILE up to _CHUNK that divides `length`."""
  sizes = range(logical.TILE, min(length, _CHUNK) + 1, logical.TILE)
  return max(size for size in sizes if length % size == 0)


def _tables(sin: np.ndarray, cos: np.ndarray, width: int) -> jax.Array:
  """Returns [3, T, width]: factors of x and of x shifted left and right."""
  length, half = sin.shape
  rest = np.zeros((length, width - 2 * half), np.float32)
  none = np.zeros_like(sin)
  return jnp.asarray(
    np.stack(
      [
        np.concatenate([cos, cos, rest + 1], 1),
        np.concatenate([-sin, none, rest], 1),
        np.concatenate([none, sin, rest], 1),
      ]
    )
  )


def _kernel(
  chunk: int,
  width: int,
  half: int,
  quantized: bool,
  qkv,
  tables,
  mixed,
  keys_out,
  values_out,
  *refs,
) -> None:
  """Processes one chunk of one head; see `attend`."""
  *scales_out, keys, values, key_scales, value_scales = refs
  index = pl.program_id(2)

  def part(at: int) -> jax.Array:
    return qkv[0, :, at * width : (at + 1) * width].astype(jnp.float32)

  q = _rotate(part(0), tables, half) * np.float32(1 / np.sqrt(width))
  q = q.astype(jnp.bfloat16)
  k = _rotate(part(1), tables, half).T
  v = part(2)
  if quantized:
    k, key_scale = rows.quantized(k, 0)
    value_scale = jnp.abs(v.T).max(0, keepdims=True) * (1 / rows.LARGEST)
    v, _ = rows.quantized(v, 1)
    scales_out[0][0, 0] = key_scale
    scales_out[1][0, 0] = value_scale
    key_scales[index] = key_scale
    value_scales[index] = value_scale
  keys_out[0, 0] = k.astype(keys_out.dtype)
  values_out[0, 0] = v.astype(values_out.dtype)
  keys[index] = k.astype(jnp.bfloat16)
  values[index] = v.astype(jnp.bfloat16)

  def extend(sums, other: jax.Array, own: bool):
    peak, total, summed = sums
    scores = _dot(q, keys[other])
    if quantized:
      scores *= key_scales[other]
    if own:
      shape = (chunk, chunk)
      row, column = (
        jax.lax.broadcasted_iota(jnp.int32, shape, dim) for dim in (0, 1)
      )
      scores = jnp.where(column <= row, scores, _MASKED)
    new_peak = jnp.maximum(peak, scores.max(1, keepdims=True))
    share = jnp.exp(peak - new_peak)
    weights = jnp.exp(scores - new_peak)
    total = total * share + weights.sum(1, keepdims=True)
    if quantized:
      weights *= value_scales[other]
    summed = summed * share + _dot(weights.astype(jnp.bfloat16), values[other])
    return new_peak, total, summed

  # Each token sees itself, so its own chunk replaces the first peak by a real
  # score.
  sums = (
    jnp.full((chunk, 1), _MASKED, jnp.float32),
    jnp.zeros((chunk, 1), jnp.float32),
    jnp.zeros((chunk, width), jnp.float32),
  )
  sums = extend(sums, index, True)
  _, total, summed = jax.lax.fori_loop(
    0, index, lambda other, sums: extend(sums, other, False), sums
  )
  mixed[0] = (summed / total).astype(mixed.dtype)


def _rotate(x: jax.Array, tables, half: int) -> jax.Array:
  """Rotates x [C, H]; the rotated part is in its first registers."""
  slab = tables.shape[-1]
  turned = x[:, :slab]
  left = pltpu.roll(turned, slab - half, 1)
  right = pltpu.roll(turned, half, 1)
  turned = turned * tables[0] + left * tables[1] + right * tables[2]
  if slab == x.shape[1]:
    return turned
  return jnp.concatenate([turned, x[:, slab:]], 1)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
  return jax.lax.dot_general(
    a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32
  )
