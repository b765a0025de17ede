"""Parts of the model, of which each family has its choice.

Letters in shapes as in `model.py`.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import einsum as einsum_lib

einsum = einsum_lib.einsum

# The longest wavelength of sinusoidal positions is 2 pi times this.
_LONGEST_WAVE = 10000.0


def embed(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  tokens: jax.Array,
  positions: jax.Array | np.ndarray,
) -> jax.Array:
  """Hidden states before the first layer, float32.

  Args:
    weights: the model.
    config: its sizes.
    tokens: [B, T] int32.
    positions: of the tokens, [B] int32 if they are one for each row, or [1, T].
  """
  x = _rows(weights.embedding, tokens)
  if config.architecture.scaled_embedding:
    x = x * np.float32(config.model_dim**0.5)
  if config.architecture.positions == architecture_lib.SINUSOIDAL:
    at = jnp.asarray(positions).reshape(len(positions), -1)
    x = x + _sinusoids(at, config.model_dim)
  return x


def _sinusoids(positions: jax.Array, width: int) -> jax.Array:
  """Returns what is added at positions [...], of int32: [..., width] float32.

  Half of the dims are sines of the position and half are cosines, at
  wavelengths that grow geometrically: `PositionalEmbedding` of praxis.
  """
  count = width // 2
  step = math.log(_LONGEST_WAVE) / max(count - 1, 1)
  frequency = jnp.exp(jnp.arange(count, dtype=jnp.float32) * -step)
  angle = positions[..., None] * frequency
  signal = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)
  odd = [(0, 0)] * (signal.ndim - 1) + [(0, width % 2)]
  return jnp.pad(signal, odd)


def rotary_table(
  num_positions: int, rotary_dim: int, base: float
) -> tuple[np.ndarray, np.ndarray]:
  """Returns sin, cos [num_positions, rotary_dim / 2] float32.

  GPT-J rotates neighboring pairs (0, 1), (2, 3), ... of the first rotary_dim
  dims. `weights.py` reorders those dims so that a pair's members lie
  rotary_dim/2 apart, which turns the rotation into two contiguous halves. Other
  families have them in this order from the start.

  Args:
    num_positions: The number of rows; angles are computed in float32.
    rotary_dim: The number of rotated dims.
    base: Wavelengths grow geometrically from 2 pi to about 2 pi * base.
  """
  exponent = np.arange(0, rotary_dim, 2, dtype=np.float32) / rotary_dim
  frequency = (1.0 / np.float32(base) ** exponent).astype(np.float32)
  angle = np.arange(num_positions, dtype=np.float32)[:, None] * frequency
  return np.sin(angle), np.cos(angle)


def rotate(x: jax.Array, sin: jax.Array, cos: jax.Array) -> jax.Array:
  """Rotates the first dims of x [..., H] by sin, cos [..., rotary_dim / 2]."""
  half = sin.shape[-1]
  a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
  return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def _rows(table: jax.Array, tokens: jax.Array) -> jax.Array:
  """Rows of an embedding, as float32."""

  def on_cpu(table: jax.Array, tokens: jax.Array) -> jax.Array:
    # XLA would make the whole table float32, before the loop over steps.
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
  """The layer norm of x [..., D]."""
  mean = x.mean(-1, keepdims=True)
  centred = x - mean
  variance = jnp.square(centred).mean(-1, keepdims=True)
  normal = centred * jax.lax.rsqrt(variance + config.ln_epsilon)
  return normal * norm.scale + norm.bias


def activate(x: jax.Array, config: config_lib.ModelConfig) -> jax.Array:
  """Returns the nonlinear function of the feed-forward layer of x."""
  if config.architecture.activation == architecture_lib.GELU:
    return jax.nn.gelu(x, approximate=False)
  return gelu(x)


def gelu(x: jax.Array) -> jax.Array:
  """Computes GELU by its tanh approximation, as in GPT-2."""
  inner = np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * (x * x * x))
  return 0.5 * x * (1.0 + jnp.tanh(inner))


def cap_logits(
  weights: weights_lib.Weights, config: config_lib.ModelConfig, x: jax.Array
) -> jax.Array:
  """Logits [..., V] with the cap, if there is one."""
  cap = config.architecture.logit_cap
  if cap is None:
    return x
  # Tokens that were only added to fill up a mesh stay at minus infinity.
  added = jnp.isneginf(weights.head_bias)
  return jnp.where(added, x, cap * jnp.tanh(x * (1 / cap)))


@dataclasses.dataclass(frozen=True)
class Whole:
  """The operations of a layer, which XLA splits among devices, if at all.

  `tensor_parallel.Rows` has the same ones, which are split by rows.
  """

  config: config_lib.ModelConfig

  def split(self, x: jax.Array) -> jax.Array:
    """Returns the form that the layers pass on of x [A, R, D]: the same."""
    return x

  join = split

  def project(
    self, layer: weights_lib.Layer, x: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns x normalized, and its queries, keys and values for `heads`."""
    h = normalize(x, layer.norm, self.config)
    qkv = einsum('btd,nchd->cbnth', h, layer.qkv)
    if layer.qkv_bias is None:
      return h, qkv
    return h, qkv + layer.qkv_bias.transpose(1, 0, 2)[:, None, :, None]

  def heads(self, qkv: jax.Array) -> jax.Array:
    """Returns queries, keys and values as [G + 2, A, N, R, H]: the same."""
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
      layer: Its weights.
      x: [B, T, D], the residual.
      h: [B, T, D], as of `project`.
      mixed: [B, N * G, 1, H]: that token's alone.
      at: [B, 1, 1] int32, the index of the token.
    """
    del layer
    x, h = (jnp.take_along_axis(each, at, 1) for each in (x, h))
    return self, x, h, mixed

  def finish(
    self,
    layer: weights_lib.Layer,
    x: jax.Array,
    h: jax.Array,
    mixed: jax.Array,
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Adds attention and the feed-forward layer to the residual `x`.

    If both read `h`, their products are added first: where devices have parts
    of both, those are summed by one all-reduce.

    Returns:
      The layer's result, and what `up` and `down` were multiplied with.
    """
    residual = self.config.architecture.residual
    attended = einsum('bnth,nhd->btd', mixed, layer.post)
    attended = _biased(attended, layer.post_bias)
    if residual == architecture_lib.SEQUENTIAL:
      x = x + attended
    if layer.ff_norm is not None:
      h = normalize(x, layer.ff_norm, self.config)
    fed = _biased(einsum('...d,df->...f', h, layer.up), layer.up_bias)
    hidden = activate(fed, self.config)
    down = einsum('...f,fd->...d', hidden, layer.down)
    if residual != architecture_lib.SEQUENTIAL:
      down = attended + down
    return x + _biased(down, layer.down_bias), h, hidden


def _biased(x: jax.Array, bias: jax.Array | None) -> jax.Array:
  return x if bias is None else x + bias
