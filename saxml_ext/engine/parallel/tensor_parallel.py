"""Computes layers with int8 matrices on TPU, split among devices.

If XLA gets only the shardings, three parts of a layer cost more than its
products. It sums int32 products over the interconnect, because the activations'
scale depends on whole rows. It repeats the layer norm and the residual on each
device. It quantizes in several passes over float32. This module uses sequence
parallelism instead:

- x [R, D], the residual stream, is split by rows. Each device normalizes and
  quantizes its own rows, and sends int8 codes to the others. These are half the
  bytes of bfloat16.
- The dimensions that `post` and `down` contract are split among the devices.
  Each device quantizes its part with its own scale. This needs no
  communication, and the scale is never coarser than that of the whole row. The
  device rounds its part of the sum to bfloat16, and gets the sum of its rows.

The result differs from that of `components.Whole` by rounding. The letters in
shapes are those of `model.py`. M is the number of rows, B * T or S * K. R is M
rounded up so that each device has whole registers.
"""

from collections.abc import Callable
import math

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import logical
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.kernels.tpu import prefill_attention
from saxml_ext.engine.kernels.tpu import rows as rows_lib
from saxml_ext.engine.numerics import quant

# The mesh axis of sequence parallelism, which also splits each matrix.
[_AXIS] = logical.axes('rows')
# The number of rows in a register of 32-bit numbers.
_SUBLANES = 8

P = jax.sharding.PartitionSpec


def applies(weights: weights_lib.Weights) -> bool:
  """Returns True if this module computes the layers: on TPU, all in int8."""
  layers = weights.layers
  layer = layers[0] if isinstance(layers, tuple) else layers
  matrices = [layer.qkv, layer.post, layer.up, layer.down]
  matrices += [] if layer.gate is None else [layer.gate]
  return _for_tpu() and all(map(in_int8, matrices))


def attends(config: config_lib.ModelConfig, kv_dtype: str) -> bool:
  """Returns True if `Rows.attend` supports this model and this type of KV."""
  switches, details = config.architecture, config.details
  return (
    0 < config.rotary_dim <= logical.TILE
    and switches.attention_cap is switches.qk_norm is details.attention is None
    and not details.unrotated
    and config.group == 1
    and prefill_attention.fits(config.head_dim, kv_dtype)
  )


def _for_tpu() -> bool:
  return logical.platform() == 'tpu'


def in_int8(matrix: weights_lib.Matrix | None) -> bool:
  """Returns True if the activations of this matrix are quantized to int8."""
  if not isinstance(matrix, quant.QuantizedArray):
    return False
  return matrix.activations is None


class Rows:
  """The operations of a layer, split by rows of activations; static.

  `components.Whole` has the same operations, which XLA splits.

  Attributes:
    shape: The leading dimensions of the activations, for example (B, T).
    config: The sizes of the model, and its architecture.
    axes: The mesh axes of slots, which split the first dimension if it divides.
  """

  def __init__(
    self,
    shape: tuple[int, ...],
    config: config_lib.ModelConfig,
    axes: tuple[str, ...] = (),
  ):
    mesh = jax.sharding.get_abstract_mesh()
    sizes = {} if mesh.empty else dict(mesh.shape)
    self.shape = shape
    self.config = config
    groups = math.prod(sizes.get(axis, 1) for axis in axes)
    whole = groups == 1 or shape[0] % groups  # Few slots do not divide.
    self.axes = () if whole else axes
    self._groups = 1 if whole else groups
    self._parts = sizes.get(_AXIS, 1)
    self._split = not mesh.empty

  @property
  def _count(self) -> int:
    """The number of rows of each group, M."""
    return math.prod(self.shape) // self._groups

  @property
  def _part(self) -> jax.sharding.PartitionSpec:
    """The partition spec of rows that sequence parallelism splits."""
    return P((*self.axes, _AXIS))

  def _whole(self, *dims: str) -> jax.sharding.PartitionSpec:
    """Returns the spec of rows that it leaves whole, and of more dimensions."""
    return P(self.axes or None, *logical.spec(*dims))

  def split(self, x: jax.Array) -> jax.Array:
    """Returns [*shape, D], which is whole on each device, as [R, D]."""

    def local(x):
      x = self._padded(x.reshape(-1, x.shape[-1]))
      if self._parts == 1:
        return x
      size = x.shape[0] // self._parts
      start = jax.lax.axis_index(_AXIS) * size
      return jax.lax.dynamic_slice_in_dim(x, start, size)

    return self._map(local, self._whole(), self._part)(x)

  def join(self, x: jax.Array) -> jax.Array:
    """Returns the inverse of `split`."""
    join = self._map(self._gather, self._part, self._whole())
    return join(x).reshape(*self.shape, x.shape[-1])

  def logits(self, weights: weights_lib.Weights, x: jax.Array) -> jax.Array:
    """Returns logits [*shape, V] float32 of hidden states x [R, D].

    Raises:
      ValueError: The head is not in int8.
    """
    head = weights.head
    if not isinstance(head, quant.QuantizedArray):
      raise ValueError('the head is in float, which is not split by rows.')

    def local(norm, values, scale, bias, x):
      return rows_lib.product(self._codes(x, norm), values, scale) + bias

    norm = components.final_norm(weights, self.config)
    vocab = logical.spec('vocab')
    result = self._map(
      local, (P(), vocab, vocab, vocab, self._part), self._whole('vocab')
    )(norm, head.values, head.scale, weights.head_bias, x)
    return result.reshape(*self.shape, -1)

  def project(
    self, layer: weights_lib.Layer, x: jax.Array
  ) -> tuple[rows_lib.Codes, jax.Array]:
    """Normalizes, quantizes and multiplies with `qkv`.

    Args:
      layer: The weights.
      x: The residual, [R, D] float32.

    Returns:
      The normalized and quantized rows, all on every device. The
      queries, keys and values [M, N * (G + 2) * H] bfloat16, split by heads.
    """

    def local(norm, qkv, bias, x):
      codes = self._codes(x, norm)
      products = rows_lib.product(codes, qkv.values, qkv.scale.reshape(-1))
      if bias is not None:
        products += bias.reshape(-1)
      return codes, products.astype(jnp.bfloat16)

    return self._map(
      local,
      (P(), _matrix('kv_heads'), logical.spec('kv_heads'), self._part),
      (self._whole(), self._whole('kv_heads')),
    )(layer.norm, layer.qkv, layer.qkv_bias, x)

  def heads(self, qkv: jax.Array) -> jax.Array:
    """Returns the result of `project` as [G + 2, A, N, R, H]."""
    c = self.config
    qkv = qkv.reshape(*self.shape, c.kv_heads, c.group + 2, c.head_dim)
    return qkv.transpose(3, 0, 2, 1, 4)

  def attend(
    self,
    qkv: jax.Array,
    rotations: tuple[np.ndarray, np.ndarray],
    kv_dtype: str,
  ) -> tuple[jax.Array, cache.KV, cache.KV]:
    """Computes attention of whole prompts; see `prefill_attention.py`.

    Args:
      qkv: The queries, keys and values from `project`.
      rotations: The tables sin and cos [T, rotary_dim / 2] of
        `rotary.table`. T must be a multiple of TILE.
      kv_dtype: The number format of KV, which `attends` must support.

    Returns:
      The mixed values for `finish`, and the keys [B, N, H, T] and values [B, N,
      T, H] in the form of the cache.
    """

    def local(qkv):
      rows = self.shape[0] // self._groups
      result = prefill_attention.attend(
        qkv.reshape(rows, *self.shape[1:], -1),
        *rotations,
        self.config.head_dim,
        kv_dtype,
        interpret=rows_lib.interpreted(),
      )
      return result._replace(
        mixed=result.mixed.reshape(-1, result.mixed.shape[-1])
      )

    heads = self._whole('kv_heads')
    scales = heads if kv_dtype == 'int8' else None
    result = self._map(
      local,
      heads,
      prefill_attention.Attended(heads, heads, heads, scales, scales),
    )(qkv)
    return (
      result.mixed,
      cache.as_kept(cache.keys_as, kv_dtype, result.keys, result.key_scale),
      cache.as_kept(cache.rows_as, kv_dtype, result.values, result.value_scale),
    )

  def only(
    self,
    layer: weights_lib.Layer,
    x: jax.Array,
    codes: rows_lib.Codes,
    mixed: jax.Array,
    at: jax.Array,
  ) -> tuple[components.Whole, jax.Array, jax.Array, jax.Array]:
    """Returns the operations and operands to finish one token of each prompt.

    Args:
      layer: The weights.
      x: The residual, [R, D], as in `project`.
      codes: The quantized rows from `project`.
      mixed: The mixed values, as in `finish`.
      at: The index of the token, [B, 1, 1] int32.
    """
    del codes
    mixed = self._flat(mixed).reshape(*self.shape, -1, self.config.head_dim)
    mixed = jnp.take_along_axis(mixed, at[..., None], 1).transpose(0, 2, 1, 3)
    x = jnp.take_along_axis(self.join(x), at, 1)
    h = components.normalize(x, layer.norm, self.config)
    return components.Whole(self.config), x, h, mixed

  def finish(
    self,
    layer: weights_lib.Layer,
    x: jax.Array,
    codes: rows_lib.Codes,
    mixed: jax.Array,
  ) -> tuple[jax.Array, None, None]:
    """Adds attention's result and the feed-forward layer to the residual.

    Args:
      layer: The weights.
      x: The residual, [R, D] float32, as in `project`.
      codes: The quantized rows from `project`.
      mixed: The mixed values, [A, N * G, R, H], or in the form of `attend`.

    Returns:
      The next residual [R, D] float32, and None twice for `model.Taps`.
    """
    architecture = self.config.architecture
    sequential = architecture.residual == architecture_lib.SEQUENTIAL

    def local(post, gate, up, up_bias, down, down_bias, post_bias, norm, *rows):
      x, codes, mixed = rows
      total = rows_lib.product(_quantized(mixed), post.values, post.scale)
      if sequential:
        x, total, post_bias = self._added(x, total, post_bias), 0, None
      if norm is not None:
        codes = self._codes(x, norm)
      hidden = rows_lib.product(codes, up.values, up.scale)
      if up_bias is not None:
        hidden += up_bias
      if gate is None:
        hidden = _activate(hidden, architecture)
      else:
        gated = rows_lib.product(codes, gate.values, gate.scale)
        hidden *= _activate(gated, architecture)
      hidden = hidden.astype(jnp.bfloat16)
      total += rows_lib.product(_quantized(hidden), down.values, down.scale)
      return self._added(x, total, down_bias, post_bias)

    x = self._map(
      local,
      (
        _matrix('embed', 'heads'),
        _matrix('hidden') if architecture.gated else None,
        _matrix('hidden'),
        logical.spec('hidden'),
        _matrix('embed', 'hidden'),
        P(),
        P(),
        P(),
        self._part,
        self._whole(),
        self._whole('heads'),
      ),
      self._part,
    )(
      layer.post,
      layer.gate,
      layer.up,
      layer.up_bias,
      layer.down,
      layer.down_bias,
      layer.post_bias,
      layer.ff_norm,
      x,
      codes,
      self._flat(mixed),
    )
    return x, None, None

  def _flat(self, mixed: jax.Array) -> jax.Array:
    """Returns the mixed values as [M, N * G * H]."""
    if mixed.ndim == 2:
      return mixed
    return mixed.transpose(0, 2, 1, 3).reshape(math.prod(self.shape), -1)

  def _codes(self, x: jax.Array, norm: weights_lib.Norm) -> rows_lib.Codes:
    """Normalizes and quantizes this device's rows, and gathers all rows."""
    codes = rows_lib.normalize(
      x, norm.scale, norm.bias, self.config.ln_epsilon, rows_lib.interpreted()
    )
    return jax.tree.map(self._gather, codes)

  def _added(
    self, x: jax.Array, part: jax.Array, *biases: jax.Array | None
  ) -> jax.Array:
    """Returns this device's rows plus the sum of all devices' parts."""
    x = x + self._scatter(part.astype(jnp.bfloat16))
    for bias in biases:
      if bias is not None:
        x = x + bias
    return x

  def _map(self, function: Callable, in_specs, out_specs) -> Callable:
    """Returns `function` on each device's part, or itself without a mesh."""
    if not self._split:
      return function
    return jax.shard_map(
      function, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )

  def _padded(self, x: jax.Array) -> jax.Array:
    """Returns the rows [M, ...] of a group, padded to divide evenly."""
    missing = -self._count % (self._parts * _SUBLANES)
    return jnp.pad(x, ((0, missing), (0, 0)))

  def _gather(self, x: jax.Array) -> jax.Array:
    """Returns the rows of all devices, [M, ...]."""
    if self._parts > 1:
      x = jax.lax.all_gather(x, _AXIS, tiled=True)
    return x[: self._count]

  def _scatter(self, x: jax.Array) -> jax.Array:
    """Returns this device's rows of the sum over devices of x [M, D]."""
    x = self._padded(x)
    if self._parts == 1:
      return x
    return jax.lax.psum_scatter(x, _AXIS, tiled=True)


def _activate(
  x: jax.Array, architecture: architecture_lib.Architecture
) -> jax.Array:
  if architecture.activation == architecture_lib.SILU:
    return jax.nn.silu(x)
  by_tanh = architecture.activation == architecture_lib.GELU_TANH
  return jax.nn.gelu(x, approximate=by_tanh)


def _quantized(x: jax.Array) -> rows_lib.Codes:
  return rows_lib.quantize(x, rows_lib.interpreted())


def _matrix(*dims: str) -> quant.QuantizedArray:
  """Returns the partition specs of a matrix's codes and of its scales."""
  return quant.QuantizedArray(logical.spec(*dims), logical.spec(*dims[:1]))
