"""Runs the layers of a decode step on one GPU with few kernels.

XLA computes the matrix products, and splits long ones so that they fill the
card. Between two products there is one kernel: it adds the parts, and applies
all that lies between; see `kernels/gpu/row_kernels.py`. So each input of a
product is quantized once.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.kernels.gpu import row_kernels
from saxml_ext.engine.kernels.tpu import rows as rows_lib
from saxml_ext.engine.numerics import quant

Sums: TypeAlias = row_kernels.Sums
# The residual [M, D], and the products to add to it.
Residual: TypeAlias = tuple[jax.Array, tuple[Sums, ...]]

# GPUs read a matrix faster for 8 rows than for one; see docs/accelerators.md.
_LEAST_ROWS = 8
# A product is split into parts until it has four tiles for each of an H100's 132
# cores, unless the parts would be large. No card has shown that these are best.
_TILES = 528
_TILE_OUTPUTS = 64
_MOST_PART_ROWS = 320


def applies(
  weights: weights_lib.Weights, config: config_lib.ModelConfig
) -> bool:
  """Returns True if this module computes the layers of a decode step."""
  if logical.platform() != 'gpu' or weights.stacked:
    return False
  layer = layers_lib.at(weights.layers, 0)
  architecture = config.architecture
  matrices = [layer.qkv, layer.post, layer.up, layer.down]
  matrices += [] if layer.gate is None else [layer.gate]
  codes = [_in_codes(matrix) for matrix in matrices]
  floats = [isinstance(matrix, jax.Array) for matrix in matrices]
  # Kernels cannot compute the error function.
  exact_gelu = architecture.activation == architecture_lib.GELU
  return (
    jax.sharding.get_abstract_mesh().empty
    and config.plain_residual
    and architecture.residual != architecture_lib.PARALLEL
    and architecture.qk_norm is None
    and (all(floats) or (all(codes) and not exact_gelu))
  )


def _in_codes(matrix: weights_lib.Matrix | None) -> bool:
  """Returns True if both factors of products with a matrix are quantized."""
  return (
    isinstance(matrix, quant.QuantizedArray)
    and matrix.activations in quant.CODES
  )


@dataclasses.dataclass(frozen=True)
class GpuRows:
  """The operations of a layer; see `components.Whole`.

  Attributes:
    config: The configuration of the model.
    shape: The numbers of slots and beams, C and K.
    dtype: The type of the inputs of products.
  """

  config: config_lib.ModelConfig
  shape: tuple[int, ...]
  dtype: jnp.dtype

  @classmethod
  def for_weights(
    cls,
    weights: weights_lib.Weights,
    config: config_lib.ModelConfig,
    shape: tuple[int, ...],
  ) -> 'GpuRows':
    """Returns the operations for a model and for numbers of slots and beams."""
    up = layers_lib.at(weights.layers, 0).up
    matrix = up.values if isinstance(up, quant.QuantizedArray) else up
    return cls(config, shape, matrix.dtype)

  @property
  def float_dtype(self) -> jnp.dtype:
    """The type of inputs of products that are not quantized yet."""
    return jnp.dtype(jnp.float32) if self._is_quantized else self.dtype

  @property
  def _is_quantized(self) -> bool:
    return self.dtype in quant.CODES.values()

  def split(self, x: jax.Array) -> Residual:
    """Returns x [C, K, D] as layers pass it on."""
    return self._padded(x.reshape(-1, x.shape[-1])), ()

  def join(self, residual: Residual) -> jax.Array:
    """Returns the hidden states, [C, K, D] float32."""
    x, products = residual
    for product in products:
      [value] = product.values()
      x = x + value
    return x[: math.prod(self.shape)].reshape(*self.shape, -1)

  def project(
    self, layer: weights_lib.Layer, residual: Residual
  ) -> tuple[tuple[jax.Array, Any], Sums]:
    """Returns the residual and its norm, and the product with qkv."""
    x, h = self._normalize(*residual, layer.norm)
    return (x, h), self._product(h, [layer.qkv], [layer.qkv_bias], True)

  def write_step(
    self,
    qkv: Sums,
    rotations: tuple[jax.Array, jax.Array],
    current: cache.Block,
    layer: int,
    at: jax.Array,
    slots: jax.Array | None,
  ) -> tuple[jax.Array, cache.Block]:
    """Returns queries [C, N, K * G, H], and `current` with the step written."""
    count, beams = self.shape
    if slots is None:
      # XLA would compute jnp.arange again for each layer.
      slots = jnp.asarray(np.arange(count, dtype=np.int32))
    sin, cos = (table.reshape(count, -1) for table in rotations)
    factor = self.config.details.attention
    keys, values = (
      layers_lib.at(kv, layer) for kv in (current.keys, current.values)
    )
    queries, written = row_kernels.write_step(
      qkv,
      (sin, cos),
      (beams, self.config.kv_heads),
      at,
      slots,
      row_kernels.KV(*[tuple(jax.tree.leaves(kv)) for kv in (keys, values)]),
      1 if factor is None else factor * self.config.head_dim**0.5,
      decode_attention.is_interpreted(),
    )

    def put(layers: Any, parts: Sequence[jax.Array]) -> cache.PerLayer:
      new = jax.tree.unflatten(jax.tree.structure(layers[layer]), parts)
      return (*layers[:layer], new, *layers[layer + 1 :])

    return queries, cache.Block(
      put(current.keys, written.keys), put(current.values, written.values)
    )

  def finish(
    self,
    layer: weights_lib.Layer,
    residual: Residual,
    normal: tuple[jax.Array, Any],
    mixed: jax.Array,
  ) -> tuple[Residual, None, None]:
    """Returns the next residual, and None twice for `model.Taps`."""
    del residual
    x, h = normal
    rows = mixed.swapaxes(1, 2).reshape(math.prod(self.shape), -1)
    attended = self._product(self._input(rows), [layer.post], [layer.post_bias])
    products: tuple[Sums, ...] = (attended,)
    if layer.ff_norm is not None:
      x, h = self._normalize(x, products, layer.ff_norm)
      products = ()
    hidden = self._hidden(layer, h)
    down = self._product(hidden, [layer.down], [layer.down_bias])
    return (x, (*products, down)), None, None

  def _normalize(
    self, x: jax.Array, products: Sequence[Sums], norm: weights_lib.Norm
  ) -> tuple[jax.Array, Any]:
    return row_kernels.add_and_normalize(
      x,
      products,
      (norm.scale, norm.bias),
      self.config.ln_epsilon,
      self.dtype,
      decode_attention.is_interpreted(),
    )

  def _hidden(self, layer: weights_lib.Layer, h: Any) -> Any:
    """Returns the input of `down`; gate and up are one product."""
    weights, biases = [layer.up], [layer.up_bias]
    if layer.gate is not None:
      weights.append(layer.gate)
      biases.append(None)
    fed = self._product(h, weights, biases)

    def activated(up: jax.Array, *gate: jax.Array) -> jax.Array:
      if not gate:
        return components.activate(up, self.config)
      return components.activate(gate[0], self.config) * up

    if self._is_quantized:
      return self._quantize(activated, fed)
    return activated(*fed.values()).astype(self.dtype)

  def _input(self, rows: jax.Array) -> Any:
    """Returns rows as the input of a product."""
    rows = self._padded(rows)
    if not self._is_quantized:
      return rows.astype(self.dtype)
    return self._quantize(lambda x: x, Sums(rows[None], None, (), (None,)))

  def _quantize(
    self, function: Callable[..., jax.Array], product: Sums
  ) -> rows_lib.Codes:
    interpret = decode_attention.is_interpreted()
    return row_kernels.quantize(function, product, self.dtype, interpret)

  def _padded(self, rows: jax.Array) -> jax.Array:
    missing = max(0, _LEAST_ROWS - rows.shape[0])
    return jnp.pad(rows, ((0, missing), (0, 0))) if missing else rows

  def _product(
    self,
    h: jax.Array | rows_lib.Codes,
    weights: Sequence[weights_lib.Matrix],
    biases: Sequence[jax.Array | None],
    outputs_first: bool = False,
  ) -> Sums:
    """Returns the products of rows with matrices."""
    flat = tuple(None if b is None else b.reshape(-1) for b in biases)
    if not isinstance(h, rows_lib.Codes):
      parts = _parts(h, weights, outputs_first, jnp.float32)
      return Sums(parts, None, (), flat)
    values = [weight.values for weight in weights]
    scales = tuple(weight.scale.reshape(-1) for weight in weights)
    sums = jnp.int32 if self.dtype == jnp.int8 else jnp.float32
    return Sums(_parts(h.values, values, True, sums), h.scale, scales, flat)


def _parts(
  x: jax.Array, weights: Sequence[jax.Array], outputs_first: bool, dtype: Any
) -> jax.Array:
  """Returns the parts [P, M, N] of the product of x [M, K] and weights."""
  # Without the barrier, XLA would join the matrices in memory before the loop
  # over steps. It would also merge products of the same x, and then copy the
  # slices that kernels read.
  x, weights = jax.lax.optimization_barrier((x, weights))
  rows, depth = x.shape
  axis = 1 if outputs_first else 0  # The dimension that is contracted.
  shape = (-1, depth) if outputs_first else (depth, -1)
  # XLA joins two matrices within the kernel of the product.
  matrix = jnp.concatenate([w.reshape(shape) for w in weights], 1 - axis)
  outputs = matrix.shape[1 - axis]
  most = min(_TILES * _TILE_OUTPUTS // outputs, _MOST_PART_ROWS // rows)
  parts = math.gcd(depth, 1 << max(1, most).bit_length() - 1)
  dot = functools.partial(
    jax.lax.dot_general,
    precision=jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
    preferred_element_type=dtype,
  )
  if parts == 1:
    return dot(x, matrix, (((1,), (axis,)), ((), ())))[None]
  split = (*matrix.shape[:axis], parts, -1, *matrix.shape[axis + 1 :])
  dims = ((2,), (axis + 1,)), ((1,), (axis,))
  return dot(x.reshape(rows, parts, -1), matrix.reshape(split), dims)
