"""GPT-J: prefill of prompts, and one decode step of beam groups.

Attention and feed-forward read the same layer norm and are added to the
residual together. Activations are float32; matrices have the weights' type and
KV one of its own, `kv_dtype`. Letters in shapes: B prompts, S slots, K beams,
T tokens, D width, N heads, H head width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import attention
from saxml_ext.engine import cache
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import decode_attention
from saxml_ext.engine import einsum as einsum_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import rotary
from saxml_ext.engine import weights as weights_lib

einsum = einsum_lib.einsum

Kept = TypeVar("Kept")
KeepKV = Callable[[Kept, layers_lib.Index, cache.KV, cache.KV], Kept]
PastKV = Callable[[Kept, layers_lib.Index], Sequence[attention.Source]]


def prefill(
    weights: weights_lib.Weights,
    config: config_lib.GPTJConfig,
    tokens: jax.Array,
    kv_dtype: str,
    last: jax.Array | None = None,
    start: int = 0,
    past: PastKV = lambda kept, layer: (),
    keep: KeepKV = lambda kept, layer, keys, values: kept,
    kept: Kept = None,
) -> tuple[jax.Array, Kept]:
  """Runs prompts, or a chunk of them, padded on the right.

  Args:
    weights: the model.
    config: its sizes.
    tokens: [B, T] int32.
    kv_dtype: type of keys and values.
    last: [B] int32, index in T of each prompt's last token, if only that is
      asked for: then the last layer computes little but KV.
    start: position of the first token.
    past: called with what `keep` returned last and a layer's index; the keys of
      that layer before `start`.
    keep: called with what it returned last, a layer's index, its keys [B, N, H,
      T] and values [B, N, T, H].
    kept: what `keep` is called with first.

  Returns:
    Hidden states before the final layer norm (see `logits`), float32: of each
    token [B, T, D], or of the last [B, 1, D] if `last` is given. And what
    `keep` returned last.
  """
  sin, cos = (
      table[start:]
      for table in rotary.table(start + tokens.shape[1], config.rotary_dim)
  )

  def project(x: jax.Array, layer: weights_lib.Layer):
    h = _norm(x, layer.norm, config)
    q, k, v = einsum("btd,nchd->cbnth", h, layer.qkv)
    q = rotary.rotate(q, sin, cos)
    keys = rotary.rotate(k, sin, cos).transpose(0, 1, 3, 2)
    keys = cache.keys_as(keys, kv_dtype)
    return h, q, keys, cache.rows_as(v, kv_dtype)

  def whole(carry, index: layers_lib.Index, layer: weights_lib.Layer):
    x, kept = carry
    h, q, keys, values = project(x, layer)
    mixed = attention.attend_causal(q, keys, values, past(kept, index))
    mixed = einsum("bnth,nhd->btd", mixed, layer.post)
    return _add(x, mixed, h, layer), keep(kept, index, keys, values)

  x = weights.embedding[tokens].astype(jnp.float32)
  count = config.num_layers
  if last is None:
    return layers_lib.fold(whole, (x, kept), weights.layers, count)
  x, kept = layers_lib.fold(whole, (x, kept), weights.layers, count - 1)
  layer = layers_lib.at(weights.layers, count - 1)
  h, q, keys, values = project(x, layer)
  at = last[:, None, None]
  x, h = jnp.take_along_axis(x, at, 1), jnp.take_along_axis(h, at, 1)
  q = jnp.take_along_axis(q, at[:, None], 2)
  seen = attention.Source(keys, values, jnp.arange(tokens.shape[1]) <= at)
  mixed = attention.attend(q, [seen, *past(kept, count - 1)])
  mixed = einsum("bnth,nhd->btd", mixed, layer.post)
  return _add(x, mixed, h, layer), keep(kept, count - 1, keys, values)


def decode(
    weights: weights_lib.Weights,
    config: config_lib.GPTJConfig,
    tokens: jax.Array,
    positions: jax.Array,
    rotations: tuple[jax.Array, jax.Array],
    history: decode_attention.History,
    current: cache.Block,
    row: jax.Array,
    kv_dtype: str,
) -> tuple[jax.Array, cache.Block]:
  """One token of every beam.

  Args:
    weights: the model.
    config: its sizes.
    tokens: [S, K] int32, the last token of each beam.
    positions: [S] int32, their place, the prompt included.
    rotations: sin, cos [positions, rotary_dim / 2] of `rotary.table`.
    history: what the beams see besides `current`.
    current: the suffix block in which this step's keys are written.
    row: where in `current`.
    kv_dtype: type of keys and values.

  Returns:
    logits [S, K, V] float32 and `current` with the step written.
  """
  sin, cos = (table[positions][:, None, None] for table in rotations)
  attend = decode_attention.over(history)

  def body(carry, index: layers_lib.Index, layer: weights_lib.Layer):
    x, current = carry
    h = _norm(x, layer.norm, config)
    q, k, v = einsum("skd,nchd->csnkh", h, layer.qkv)
    current = cache.write_step(
        current, index, rotary.rotate(k, sin, cos), v, row, kv_dtype
    )
    mixed = attend(rotary.rotate(q, sin, cos), current, index)
    mixed = einsum("snkh,nhd->skd", mixed, layer.post)
    return _add(x, mixed, h, layer), current

  x = weights.embedding[tokens].astype(jnp.float32)
  x, current = layers_lib.fold(
      body, (x, current), weights.layers, config.num_layers
  )
  return logits(weights, config, x), current


def logits(
    weights: weights_lib.Weights, config: config_lib.GPTJConfig, x: jax.Array
) -> jax.Array:
  """Logits [..., V] float32 of hidden states x [..., D]."""
  x = _norm(x, weights.final_norm, config)
  return einsum("...d,dv->...v", x, weights.head, weights.head_bias)


def _norm(
    x: jax.Array, norm: weights_lib.Norm, config: config_lib.GPTJConfig
) -> jax.Array:
  mean = x.mean(-1, keepdims=True)
  centred = x - mean
  variance = jnp.square(centred).mean(-1, keepdims=True)
  normal = centred * jax.lax.rsqrt(variance + config.ln_epsilon)
  return normal * norm.scale + norm.bias


def _add(
    x: jax.Array, mixed: jax.Array, h: jax.Array, layer: weights_lib.Layer
) -> jax.Array:
  """Adds attention and the feed-forward layer of `h` to the residual `x`.

  Their products are added first: where devices have parts of both, those are
  summed by one all-reduce.
  """
  hidden = _gelu(einsum("...d,df->...f", h, layer.up) + layer.up_bias)
  down = einsum("...f,fd->...d", hidden, layer.down)
  return x + (mixed + down + layer.down_bias)


def _gelu(x: jax.Array) -> jax.Array:
  """GELU by its tanh approximation, as in GPT-2."""
  inner = np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * (x * x * x))
  return 0.5 * x * (1.0 + jnp.tanh(inner))
