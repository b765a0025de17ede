"""The int8 matrices of a layer on TPU, split among the devices of `model`.

XLA, told only where arrays lie, makes three things of a layer that cost more
than its products: it sums int32 products over the interconnect, because the
activations' scale is known only of whole rows; it repeats the layer norm and
the residual on each device; and it quantizes in several passes over float32.
Here the devices do instead what is known as sequence parallelism:

  x [R, D], the residual stream, is split by rows. Each device normalizes and
  quantizes its own rows, and sends the others int8 codes: half of the bytes of
  bfloat16.
  What `post` and `down` contract is split among the devices. Each quantizes its
  part by a scale of its own, which needs no word from the others and is
  never coarser than the scale of the whole row. It rounds its part of the sum
  to bfloat16, and each device receives the sum of its own rows.

The result differs from that of `model.py` as roundings do. Letters in shapes as
there; M rows are B * T or S * K, and R is M rounded up so that each device has
whole registers.
"""

from collections.abc import Callable
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.kernels.tpu import prefill_attention
from saxml_ext.engine.kernels.tpu import rows as rows_lib
from saxml_ext.engine.kernels.tpu import target
from saxml_ext.engine.numerics import quant

_AXIS = 'model'
# Rows of a register of 32-bit numbers.
_SUBLANES = 8

P = jax.sharding.PartitionSpec


class Codes(NamedTuple):
  """Quantized rows: values [M, D] int8, scale [M, 1] float32."""

  values: jax.Array
  scale: jax.Array


class Projected(NamedTuple):
  """What the first half of a layer makes of the residual.

  codes: the normalized rows, quantized, on every device of `model`.
  qkv [M, N * 3 * H] bfloat16: queries, keys and values, split by heads.
  """

  codes: Codes
  qkv: jax.Array


def applies(
  weights: weights_lib.Weights, config: config_lib.ModelConfig
) -> bool:
  """Returns True if layers are computed here: on TPU, in int8 throughout.

  Only layers of GPT-J's kind are: attention and feed-forward read the same
  norm, and only the feed-forward has biases.
  """
  a = config.architecture
  layers = weights.layers
  layer = layers[0] if isinstance(layers, tuple) else layers
  matrices = (layer.qkv, layer.post, layer.up, layer.down)
  fits = (a.residual, a.activation, a.biases) == (
    architecture_lib.GPTJ.residual,
    architecture_lib.GPTJ.activation,
    architecture_lib.GPTJ.biases,
  )
  return _for_tpu() and fits and all(map(in_int8, matrices))


def attends(config: config_lib.ModelConfig, kv_dtype: str) -> bool:
  """Whether `Rows.attend` takes this model's heads, and KV of this type."""
  turns = 0 < config.rotary_dim <= target.TILE
  capped = config.architecture.attention_cap is not None
  return (
    turns and not capped and prefill_attention.fits(config.head_dim, kv_dtype)
  )


def _for_tpu() -> bool:
  return target.platform() == 'tpu'


def in_int8(matrix: weights_lib.Matrix | None) -> bool:
  """Whether it is multiplied with activations made int8 too."""
  if not isinstance(matrix, quant.QuantizedArray):
    return False
  return matrix.activations is None


class Rows:
  """How rows of activations are split; static.

  Attributes:
    shape: the leading dims of the activations, for example (B, T).
    axes: mesh axes along which the first of these is split if it divides:
      those of slots.
  """

  def __init__(self, shape: tuple[int, ...], axes: tuple[str, ...] = ()):
    mesh = jax.sharding.get_abstract_mesh()
    sizes = {} if mesh.empty else dict(mesh.shape)
    self.shape = shape
    groups = math.prod(sizes.get(axis, 1) for axis in axes)
    whole = groups == 1 or shape[0] % groups  # Else but a few of the slots.
    self.axes = () if whole else axes
    self._groups = 1 if whole else groups
    self._parts = sizes.get(_AXIS, 1)
    self._split = not mesh.empty

  @property
  def _count(self) -> int:
    """M of each group."""
    return math.prod(self.shape) // self._groups

  @property
  def _whole(self) -> tuple[str, ...] | None:
    """How rows are split that each device of `model` has."""
    return self.axes or None

  @property
  def _part(self) -> tuple[str, ...]:
    """How rows are split that are split along `model` too."""
    return (*self.axes, _AXIS)

  def split(self, x: jax.Array) -> jax.Array:
    """[*shape, D], whole on each device of `model`, as [R, D]."""

    def local(x):
      x = self._padded(x.reshape(-1, x.shape[-1]))
      if self._parts == 1:
        return x
      size = x.shape[0] // self._parts
      start = jax.lax.axis_index(_AXIS) * size
      return jax.lax.dynamic_slice_in_dim(x, start, size)

    return self._map(local, P(self._whole), P(self._part))(x)

  def join(self, x: jax.Array) -> jax.Array:
    """The inverse of `split`."""
    join = self._map(self._gather, P(self._part), P(self._whole))
    return join(x).reshape(*self.shape, x.shape[-1])

  def logits(
    self, weights: weights_lib.Weights, x: jax.Array, epsilon: float
  ) -> jax.Array:
    """Logits [*shape, V] float32 of hidden states x [R, D].

    Raises:
      ValueError: the head is not in int8.
    """
    head = weights.head
    if not isinstance(head, quant.QuantizedArray):
      raise ValueError('the head is in float, which is not split by rows.')

    def local(norm, values, scale, bias, x):
      codes = jax.tree.map(self._gather, _normalized(x, norm, epsilon))
      return _product(codes, values, scale) + bias

    result = self._map(
      local,
      (P(), P(_AXIS), P(_AXIS), P(_AXIS), P(self._part)),
      P(self._whole, _AXIS),
    )(weights.final_norm, head.values, head.scale, weights.head_bias, x)
    return result.reshape(*self.shape, -1)

  def project(
    self, layer: weights_lib.Layer, x: jax.Array, epsilon: float
  ) -> Projected:
    """Normalizes, quantizes and multiplies with `qkv`.

    Args:
      layer: weights.
      x: [R, D] float32.
      epsilon: of the layer norm.
    """

    def local(norm, values, scale, x):
      codes = jax.tree.map(self._gather, _normalized(x, norm, epsilon))
      products = _product(codes, values, scale.reshape(-1))
      return codes, products.astype(jnp.bfloat16)

    matrix = layer.qkv
    codes, qkv = self._map(
      local,
      (P(), P(_AXIS), P(_AXIS), P(self._part)),
      (P(self._whole), P(self._whole, _AXIS)),
    )(layer.norm, matrix.values, matrix.scale, x)
    return Projected(codes, qkv)

  def attend(
    self,
    qkv: jax.Array,
    rotations: tuple[np.ndarray, np.ndarray],
    head_dim: int,
    kv_dtype: str,
  ) -> tuple[jax.Array, cache.KV, cache.KV]:
    """Attention of whole prompts; see `prefill_attention.py`.

    Args:
      qkv: of `project`.
      rotations: sin, cos [T, rotary_dim / 2] of `rotary.table`.
      head_dim: H.
      kv_dtype: such that `attends`. T must be a multiple of TILE.

    Returns:
      What `finish` wants of it; and keys [B, N, H, T] and values [B, N, T, H]
      as the cache keeps them.
    """

    def local(qkv):
      rows = self.shape[0] // self._groups
      result = prefill_attention.attend(
        qkv.reshape(rows, *self.shape[1:], -1),
        *rotations,
        head_dim,
        kv_dtype,
        interpret=_interpreted(),
      )
      return result._replace(
        mixed=result.mixed.reshape(-1, result.mixed.shape[-1])
      )

    heads = P(self._whole, _AXIS)
    scales = heads if kv_dtype == 'int8' else None
    result = self._map(
      local,
      P(self._whole, _AXIS),
      prefill_attention.Attended(
        P(self._whole, _AXIS), heads, heads, scales, scales
      ),
    )(qkv)
    return (
      result.mixed,
      _kept(result.keys, result.key_scale, cache.keys_as, kv_dtype),
      _kept(result.values, result.value_scale, cache.rows_as, kv_dtype),
    )

  def finish(
    self,
    layer: weights_lib.Layer,
    x: jax.Array,
    codes: Codes,
    mixed: jax.Array,
  ) -> jax.Array:
    """Adds attention's result and the feed-forward layer to the residual.

    Args:
      layer: weights.
      x: [R, D] float32, as of `project`.
      codes: of `project`.
      mixed: [M, N * H], what attention read.

    Returns:
      [R, D] float32.
    """

    def local(post, up, up_bias, down, down_bias, x, codes, mixed):
      hidden = _product(codes, up.values, up.scale) + up_bias
      hidden = jax.nn.gelu(hidden, approximate=True).astype(jnp.bfloat16)
      total = _product(_quantized(mixed), post.values, post.scale)
      total += _product(_quantized(hidden), down.values, down.scale)
      return x + self._scatter(total.astype(jnp.bfloat16)) + down_bias

    def matrix(*dims):
      return quant.QuantizedArray(P(*dims), P(*dims[:1]))

    return self._map(
      local,
      (
        matrix(None, _AXIS),
        matrix(_AXIS),
        P(_AXIS),
        matrix(None, _AXIS),
        P(),
        P(self._part),
        P(self._whole),
        P(self._whole, _AXIS),
      ),
      P(self._part),
    )(
      layer.post,
      layer.up,
      layer.up_bias,
      layer.down,
      layer.down_bias,
      x,
      codes,
      mixed,
    )

  def _map(self, function: Callable, in_specs, out_specs) -> Callable:
    """`function` on each device's part; itself where there is no mesh."""
    if not self._split:
      return function
    return jax.shard_map(
      function, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )

  def _padded(self, x: jax.Array) -> jax.Array:
    """Rows [M, ...] of a group, filled up so that they can be split."""
    missing = -self._count % (self._parts * _SUBLANES)
    return jnp.pad(x, ((0, missing), (0, 0)))

  def _gather(self, x: jax.Array) -> jax.Array:
    """This device's rows with those of the others, [M, ...]."""
    if self._parts > 1:
      x = jax.lax.all_gather(x, _AXIS, tiled=True)
    return x[: self._count]

  def _scatter(self, x: jax.Array) -> jax.Array:
    """The sum over devices of x [M, D], this device's rows of it."""
    x = self._padded(x)
    if self._parts == 1:
      return x
    return jax.lax.psum_scatter(x, _AXIS, tiled=True)


def _normalized(x: jax.Array, norm: weights_lib.Norm, epsilon: float) -> Codes:
  """The layer norm of x, quantized."""
  return Codes(
    *rows_lib.normalize(x, norm.scale, norm.bias, epsilon, _interpreted())
  )


def _quantized(x: jax.Array) -> Codes:
  return Codes(*rows_lib.quantize(x, _interpreted()))


def _interpreted() -> bool:
  """Whether kernels run as plain operations: in tests, on CPU."""
  return target.platform() != 'tpu'


def _kept(
  values: jax.Array,
  scale: jax.Array | None,
  keep: Callable[[jax.Array, str], cache.KV],
  kv_dtype: str,
) -> cache.KV:
  """Keys or values in the form that `keep` would give them."""
  floats = jax.ShapeDtypeStruct(values.shape, jnp.float32)
  form = jax.eval_shape(lambda x: keep(x, kv_dtype), floats)
  leaves = [values] if scale is None else [values, scale]
  shapes, tree = jax.tree.flatten(form)
  return jax.tree.unflatten(
    tree, [x.reshape(shape.shape) for x, shape in zip(leaves, shapes)]
  )


def _product(x: Codes, values: jax.Array, scale: jax.Array) -> jax.Array:
  """[M, N] float32, of x [M, K] and a matrix [N, K] with its scale [N]."""
  sums = jax.lax.dot_general(
    x.values,
    values,
    (((1,), (1,)), ((), ())),
    preferred_element_type=jnp.int32,
  )
  return sums.astype(jnp.float32) * (x.scale * scale)
