"""Computes the parts of the model that differ between families.

The letters in shapes are those of `model.py`.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.numerics import einsum as einsum_lib

einsum = einsum_lib.einsum

# The longest wavelength of sinusoidal positions is 2 pi times this number.
_LONGEST_WAVE = 10000.0


def embed(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  tokens: jax.Array,
  positions: jax.Array | np.ndarray,
) -> jax.Array:
  """Returns the hidden states before the first layer, in float32.

  Args:
    weights: The weights of the model.
    config: The configuration of the model.
    tokens: The tokens, [B, T] int32.
    positions: The positions of the tokens, [B] int32 if each row has one, or
      [1, T].
  """
  x = _rows(weights.embedding, tokens)
  if config.architecture.scaled_embedding:
    x = x * np.float32(config.model_dim**0.5)
  if config.details.embedding != 1:
    x = x * np.float32(config.details.embedding)
  if config.architecture.positions == architecture_lib.SINUSOIDAL:
    at = jnp.asarray(positions).reshape(len(positions), -1)
    x = x + _sinusoids(at, config.model_dim)
  return x


def _sinusoids(positions: jax.Array, width: int) -> jax.Array:
  """Returns the encoding of positions [...] int32: [..., width] float32.

  Half of the dimensions are sines of the position and half are cosines. Their
  wavelengths grow geometrically, as in `PositionalEmbedding` of praxis.
  """
  count = width // 2
  step = math.log(_LONGEST_WAVE) / max(count - 1, 1)
  frequency = jnp.exp(jnp.arange(count, dtype=jnp.float32) * -step)
  angle = positions[..., None] * frequency
  signal = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)
  odd = [(0, 0)] * (signal.ndim - 1) + [(0, width % 2)]
  return jnp.pad(signal, odd)


def rotate(x: jax.Array, sin: jax.Array, cos: jax.Array) -> jax.Array:
  """Rotates the first dimensions of x [..., H].

  Args:
    x: The queries or keys, [..., H].
    sin: The sines, [..., rotary_dim / 2].
    cos: The cosines, [..., rotary_dim / 2].
  """
  half = sin.shape[-1]
  a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
  return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def _rows(table: jax.Array, tokens: jax.Array) -> jax.Array:
  """Returns rows of an embedding as float32."""

  def on_cpu(table: jax.Array, tokens: jax.Array) -> jax.Array:
    # Otherwise XLA would convert the whole table to float32 before the loop
    # over steps.
    table, tokens = jax.lax.optimization_barrier((table, tokens))
    return table[tokens].astype(jnp.float32)

  def elsewhere(table: jax.Array, tokens: jax.Array) -> jax.Array:
    return table[tokens].astype(jnp.float32)

  if table.dtype == jnp.float32:
    return table[tokens]
  return jax.lax.platform_dependent(
    table, tokens, cpu=on_cpu, default=elsewhere
  )


def normalize(
  x: jax.Array, norm: weights_lib.Norm, config: config_lib.ModelConfig
) -> jax.Array:
  """Returns the norm of x [..., D]."""
  if norm.bias is None:
    return _rms_norm(x, norm.scale, -1, config)
  mean = x.mean(-1, keepdims=True)
  centred = x - mean
  variance = jnp.square(centred).mean(-1, keepdims=True)
  normal = centred * jax.lax.rsqrt(variance + config.ln_epsilon)
  return normal * norm.scale + norm.bias


def _rms_norm(
  x: jax.Array,
  scale: jax.Array,
  dims: int | tuple[int, ...],
  config: config_lib.ModelConfig,
) -> jax.Array:
  mean_square = jnp.square(x).mean(dims, keepdims=True)
  return x * jax.lax.rsqrt(mean_square + config.ln_epsilon) * scale


def final_norm(
  weights: weights_lib.Weights, config: config_lib.ModelConfig
) -> weights_lib.Norm:
  """Returns the norm before the head, which also divides the logits."""
  norm, divisor = weights.final_norm, config.details.logits_divisor
  if divisor == 1:
    return norm
  return jax.tree.map(lambda x: x / np.float32(divisor), norm)


def queries_keys_values(
  qkv: jax.Array, layer: weights_lib.Layer, config: config_lib.ModelConfig
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns queries for `attention.folded`, and keys and values of qkv.

  Args:
    qkv: The result of `heads`, [G + 2, A, N, R, H].
    layer: The weights.
    config: The configuration of the model.
  """
  *queries, key, value = qkv
  query = queries[0] if len(queries) == 1 else jnp.stack(queries)
  if layer.query_norm is not None and layer.key_norm is not None:
    query = _norm_of_heads(query, layer.query_norm.scale, config)
    key = _norm_of_heads(key, layer.key_norm.scale, config)
  if config.details.attention is not None:
    # Attention multiplies scores by 1 / sqrt(H).
    factor = config.details.attention * config.head_dim**0.5
    query = query * np.float32(factor)
  return query, key, value


def _norm_of_heads(
  x: jax.Array, scale: jax.Array, config: config_lib.ModelConfig
) -> jax.Array:
  """Returns normalized queries or keys [A, N, R, H], or [G, A, N, R, H]."""
  if config.architecture.qk_norm == architecture_lib.PER_HEAD:
    return _rms_norm(x, scale, -1, config)
  if x.ndim == 4:
    scale = scale.reshape(x.shape[1], 1, -1)
    return _rms_norm(x, scale, (1, 3), config)
  scale = scale.reshape(x.shape[2], x.shape[0], 1, 1, -1).swapaxes(0, 1)
  return _rms_norm(x, scale.swapaxes(1, 2), (0, 2, 4), config)


def rotated(
  qkv: jax.Array,
  layer: weights_lib.Layer,
  config: config_lib.ModelConfig,
  rotations: tuple[jax.Array, jax.Array],
  kv_dtype: str,
) -> tuple[jax.Array, cache.KV, cache.KV]:
  """Returns rotated queries, and keys and values in the cache's format.

  Args:
    qkv: The result of `heads`, [G + 2, A, N, R, H].
    layer: The weights.
    config: The configuration of the model.
    rotations: The sines and cosines of the layer.
    kv_dtype: The number format of keys and values.
  """
  q, k, v = queries_keys_values(qkv, layer, config)
  q = rotate(q, *rotations)
  keys = rotate(k, *rotations).transpose(0, 1, 3, 2)
  return q, cache.keys_as(keys, kv_dtype), cache.rows_as(v, kv_dtype)


class StepRows(NamedTuple):
  """The rows of a suffix block that a decode step writes.

  Attributes:
    step: The index of the step in the block, [] int32.
    per_step: The number of rows of a step.
    slots: The slots, as in `cache.write_step`.
  """

  step: jax.Array
  per_step: int
  slots: jax.Array | None


def write_step(
  qkv: jax.Array,
  layer: weights_lib.Layer,
  config: config_lib.ModelConfig,
  rotations: tuple[jax.Array, jax.Array],
  kv_dtype: str,
  current: cache.Block,
  index: layers_lib.Index,
  rows: StepRows,
) -> tuple[jax.Array, cache.Block]:
  """Returns folded queries, and `current` with the step's KV written.

  Args:
    qkv: The result of `heads`, [G + 2, A, N, R, H].
    layer: The weights.
    config: The configuration of the model.
    rotations: The sines and cosines of the layers that rotate.
    kv_dtype: The number format of keys and values.
    current: The suffix block.
    index: The index of the layer.
    rows: The rows to write.
  """
  q, k, v = queries_keys_values(qkv, layer, config)
  turns = rotations_of(rotations, index, config)
  k = rotate(k, *turns)
  at = rows.step * rows.per_step
  written = cache.write_step(current, index, k, v, at, kv_dtype, rows.slots)
  return attention.folded(rotate(q, *turns)), written


def rotations_of(
  rotations: tuple[jax.Array, jax.Array],
  index: layers_lib.Index,
  config: config_lib.ModelConfig,
) -> tuple[jax.Array, jax.Array]:
  """Returns the sines and cosines of one layer; some layers do not rotate.

  Args:
    rotations: The sines and cosines of the layers that rotate.
    index: The index of the layer.
    config: The configuration of the model.
  """
  if not config.details.unrotated:
    return rotations
  rotated = np.ones(config.num_layers, np.float32)
  rotated[list(config.details.unrotated)] = 0
  sin, cos = rotations
  share = jnp.asarray(rotated)[index]
  return sin * share, cos * share + (1 - share)


def activate(x: jax.Array, config: config_lib.ModelConfig) -> jax.Array:
  """Returns the activation function of the feed-forward layer, applied to x."""
  if config.architecture.activation == architecture_lib.GELU:
    return jax.nn.gelu(x, approximate=False)
  if config.architecture.activation == architecture_lib.SILU:
    return jax.nn.silu(x)
  return gelu(x)


def gelu(x: jax.Array) -> jax.Array:
  """Computes GELU by its tanh approximation, as in GPT-2."""
  inner = np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * (x * x * x))
  return 0.5 * x * (1.0 + jnp.tanh(inner))


def cap_logits(
  weights: weights_lib.Weights, config: config_lib.ModelConfig, x: jax.Array
) -> jax.Array:
  """Returns logits [..., V], capped if the architecture has a cap."""
  cap = config.architecture.logit_cap
  if cap is None:
    return x
  # The logits of padding tokens, which exist only on a mesh, stay at minus
  # infinity.
  added = jnp.isneginf(weights.head_bias)
  return jnp.where(added, x, cap * jnp.tanh(x * (1 / cap)))


@dataclasses.dataclass(frozen=True)
class Whole:
  """The operations of a layer, which XLA splits among devices.

  `tensor_parallel.Rows` has the same operations, split by rows.
  """

  config: config_lib.ModelConfig

  def split(self, x: jax.Array) -> jax.Array:
    """Returns x [A, R, D] unchanged, as layers pass it on."""
    return x

  join = split

  def project(
    self, layer: weights_lib.Layer, x: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns normalized x, and its queries, keys and values for `heads`."""
    h = x if self._norms_results else normalize(x, layer.norm, self.config)
    qkv = einsum('btd,nchd->cbnth', h, layer.qkv)
    if layer.qkv_bias is None:
      return h, qkv
    return h, qkv + layer.qkv_bias.transpose(1, 0, 2)[:, None, :, None]

  def heads(self, qkv: jax.Array) -> jax.Array:
    """Returns queries, keys and values [G + 2, A, N, R, H], unchanged."""
    return qkv

  def only(
    self,
    layer: weights_lib.Layer,
    x: jax.Array,
    h: jax.Array,
    mixed: jax.Array,
    at: jax.Array,
  ) -> tuple['Whole', jax.Array, jax.Array, jax.Array]:
    """Returns the operations and operands to finish one token of each prompt.

    Args:
      layer: The weights.
      x: The residual, [B, T, D].
      h: The normalized residual from `project`, [B, T, D].
      mixed: The mixed values of that token only, [B, N * G, 1, H].
      at: The index of the token, [B, 1, 1] int32.
    """
    del layer
    x, h = (jnp.take_along_axis(y, at, 1) for y in (x, h))
    return self, x, h, mixed

  def finish(
    self, layer: weights_lib.Layer, x: jax.Array, h: jax.Array, mixed: jax.Array
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Adds attention and the feed-forward layer to the residual `x`.

    If both read `h`, their products are added first. If devices hold parts of
    both, one all-reduce then sums them.

    Returns:
      The layer's result, and the inputs of `up` and `down`.
    """
    residual = self.config.architecture.residual
    attended = einsum('bnth,nhd->btd', mixed, layer.post)
    attended = _biased(attended, layer.post_bias)
    attended = self._added(attended, layer.norm)
    if residual == architecture_lib.SEQUENTIAL:
      x = x + attended
    if self._norms_results:
      h = x
    elif layer.ff_norm is not None:
      h = normalize(x, layer.ff_norm, self.config)
    hidden = self._hidden(layer, h)
    down = einsum('...f,fd->...d', hidden, layer.down)
    if residual != architecture_lib.SEQUENTIAL:
      down = attended + down
    down = self._added(_biased(down, layer.down_bias), layer.ff_norm)
    return x + down, h, hidden

  @property
  def _norms_results(self) -> bool:
    return self.config.architecture.norm_policy == architecture_lib.AFTER

  def _added(self, x: jax.Array, norm: weights_lib.Norm | None) -> jax.Array:
    """Returns what a result of attention or feed-forward adds."""
    if self._norms_results and norm is not None:
      x = normalize(x, norm, self.config)
    factor = self.config.details.residual
    return x if factor == 1 else x * np.float32(factor)

  def _hidden(self, layer: weights_lib.Layer, h: jax.Array) -> jax.Array:
    """Returns the inputs [..., F] of `down`."""
    spec, activation = '...d,df->...f', self.config.architecture.activation
    if layer.gate is not None and activation == architecture_lib.SILU:
      return einsum_lib.silu_gated(spec, h, layer.gate, layer.up, layer.up_bias)
    fed = _biased(einsum(spec, h, layer.up), layer.up_bias)
    if layer.gate is None:
      return activate(fed, self.config)
    return activate(einsum(spec, h, layer.gate), self.config) * fed


def _biased(x: jax.Array, bias: jax.Array | None) -> jax.Array:
  return x if bias is None else x + bias
