"""The model: prefill of prompts, and one decode step of beam groups.

What families of models do otherwise stands in `architecture.py`. Activations
are float32; matrices have the weights' type and KV one of its own, `kv_dtype`.
Letters in shapes: B prompts, S slots, K beams, T tokens, D width, N heads, H
head width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.attention import rotary
from saxml_ext.engine.kernels.tpu import target
from saxml_ext.engine.numerics import einsum as einsum_lib
from saxml_ext.engine.parallel import tensor_parallel

einsum = einsum_lib.einsum

Rotations = tuple[jax.Array, jax.Array]
Kept = TypeVar('Kept')
KeepKV = Callable[[Kept, layers_lib.Index, cache.KV, cache.KV], Kept]
PastKV = Callable[[Kept, layers_lib.Index], Sequence[attention.Source]]


class Taps(NamedTuple):
  """What the matrices of a layer are multiplied with, float32.

  norm [B, T, D]: of qkv; mixed [B, N, T, H]: of post; fed [B, T, D]: of up, the
  same as norm where both read one layer norm; hidden [B, T, F]: of down.
  """

  norm: jax.Array
  mixed: jax.Array
  fed: jax.Array
  hidden: jax.Array


class LayerResult(NamedTuple):
  """What a layer makes of prompts.

  x [B, T, D]: the next hidden states, float32; keys [B, N, H, T] and values
  [B, N, T, H], in the type of the KV cache; taps: inputs of the matrices, which
  cost nothing where nobody reads them.
  """

  x: jax.Array
  keys: cache.KV
  values: cache.KV
  taps: Taps


def run_layer(
  layer: weights_lib.Layer,
  config: config_lib.ModelConfig,
  x: jax.Array,
  rotations: Rotations,
  kv_dtype: str = 'float32',
  past: Sequence[attention.Source] = (),
) -> LayerResult:
  """Runs one layer on prompts, or on a chunk of them.

  Args:
    layer: weights.
    config: sizes.
    x: [B, T, D] float32 hidden states; padding lies on the right.
    rotations: sin, cos [T, rotary_dim / 2] of `rotary.table` for these places.
    kv_dtype: type of keys and values.
    past: keys before these.
  """
  h, q, keys, values = _project(layer, config, x, rotations, kv_dtype)
  cap = config.architecture.attention_cap
  mixed = attention.attend_causal(q, keys, values, past, cap=cap)
  attended = einsum('bnth,nhd->btd', mixed, layer.post)
  x, fed, hidden = _finish(layer, config, x, h, attended)
  return LayerResult(x, keys, values, Taps(h, mixed, fed, hidden))


@overload
def prefill(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  tokens: jax.Array,
  kv_dtype: str,
  last: jax.Array | None = None,
  *,
  offset: jax.Array | None = None,
) -> tuple[jax.Array, None]: ...


@overload
def prefill(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  tokens: jax.Array,
  kv_dtype: str,
  last: jax.Array | None = None,
  start: int = 0,
  past: PastKV[Kept] = ...,
  *,
  keep: KeepKV[Kept],
  kept: Kept,
) -> tuple[jax.Array, Kept]: ...


def prefill(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  tokens: jax.Array,
  kv_dtype: str,
  last: jax.Array | None = None,
  start: int = 0,
  past: PastKV[Any] = lambda kept, layer: (),
  keep: KeepKV[Any] = lambda kept, layer, keys, values: kept,
  kept: Any = None,
  offset: jax.Array | None = None,
) -> tuple[jax.Array, Any]:
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
      T] and values [B, N, T, H]. On TPU T may be rounded up to whole registers:
      what stands behind the prompts' tokens nobody may look at.
    kept: what `keep` is called with first.
    offset: [B, T, D] float32, added to what enters the first layer, to
      differentiate by it; None: nothing is.

  Returns:
    Hidden states before the final layer norm (see `logits`), float32: of each
    token [B, T, D], or of the last [B, 1, D] if `last` is given. And what
    `keep` returned last.
  """
  split = tensor_parallel.applies(weights, config)
  cap = config.architecture.attention_cap
  length = tokens.shape[1]
  fused = split and start == 0 and tensor_parallel.attends(config, kv_dtype)
  if fused:  # The kernel wants whole registers; padding is on the right.
    tokens = jnp.pad(tokens, ((0, 0), (0, -length % target.TILE)))
  sin, cos = (
    table[start:]
    for table in rotary.table(
      start + tokens.shape[1], config.rotary_dim, config.rotary_base
    )
  )

  def whole(carry, index: layers_lib.Index, layer: weights_lib.Layer):
    x, kept = carry
    x, keys, values, _ = run_layer(
      layer, config, x, (sin, cos), kv_dtype, past(kept, index)
    )
    return x, keep(kept, index, keys, values)

  rows = tensor_parallel.Rows(tokens.shape, logical.axes('slots'))

  def attend(x: jax.Array, kept: Any, index: layers_lib.Index, layer):
    codes, qkv = rows.project(layer, x, config.ln_epsilon)
    if fused:
      return codes, *rows.attend(qkv, (sin, cos), config.head_dim, kv_dtype)
    q, k, v = _heads(config, qkv, tokens.shape)
    q, keys, values = _rotated(q, k, v, (sin, cos), kv_dtype)
    mixed = attention.attend_causal(q, keys, values, past(kept, index), cap=cap)
    mixed = mixed.transpose(0, 2, 1, 3).reshape(tokens.size, -1)
    return codes, mixed, keys, values

  def in_parts(carry, index: layers_lib.Index, layer: weights_lib.Layer):
    x, kept = carry
    codes, mixed, keys, values = attend(x, kept, index, layer)
    x = rows.finish(layer, x, codes, mixed)
    return x, keep(kept, index, keys, values)

  places = np.arange(start, start + tokens.shape[1])[None]
  x = components.embed(weights, config, tokens, places)
  if offset is not None:
    x = x + offset
  carry = rows.split(x) if split else x, kept
  body = in_parts if split else whole
  count = config.num_layers - (last is not None)
  x, kept = layers_lib.fold(body, carry, weights.layers, count)
  if last is None:
    return rows.join(x)[:, :length] if split else x, kept
  layer = layers_lib.at(weights.layers, count)
  at = last[:, None, None]
  if split:
    _, mixed, keys, values = attend(x, kept, count, layer)
    mixed = mixed.reshape(*tokens.shape, config.num_heads, config.head_dim)
    mixed = jnp.take_along_axis(mixed, at[..., None], 1).transpose(0, 2, 1, 3)
    x = jnp.take_along_axis(rows.join(x), at, 1)
    h = components.normalize(x, layer.norm, config)
  else:
    h, q, keys, values = _project(layer, config, x, (sin, cos), kv_dtype)
    x, h = jnp.take_along_axis(x, at, 1), jnp.take_along_axis(h, at, 1)
    q = jnp.take_along_axis(q, at[:, None], 2)
    seen = attention.Source(keys, values, jnp.arange(length) <= at)
    mixed = attention.attend(q, [seen, *past(kept, count)], cap)
  attended = einsum('bnth,nhd->btd', mixed, layer.post)
  x, *_ = _finish(layer, config, x, h, attended)
  return x, keep(kept, count, keys, values)


@einsum_lib.of_decode()
def decode(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  tokens: jax.Array,
  positions: jax.Array,
  rotations: Rotations,
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
  attend = decode_attention.over(history, config.architecture.attention_cap)

  def mix(index: layers_lib.Index, qkv: jax.Array, current: cache.Block):
    q, k, v = qkv
    current = cache.write_step(
      current,
      index,
      rotary.rotate(k, sin, cos),
      v,
      row,
      kv_dtype,
      history.slots,
    )
    return attend(rotary.rotate(q, sin, cos), current, index), current

  def whole(carry, index: layers_lib.Index, layer: weights_lib.Layer):
    x, current = carry
    h = components.normalize(x, layer.norm, config)
    qkv = _products(layer, 'skd,nchd->csnkh', h)
    mixed, current = mix(index, qkv, current)
    attended = einsum('snkh,nhd->skd', mixed, layer.post)
    x, *_ = _finish(layer, config, x, h, attended)
    return x, current

  rows = tensor_parallel.Rows(tokens.shape, logical.axes('slots'))

  def in_parts(carry, index: layers_lib.Index, layer: weights_lib.Layer):
    x, current = carry
    codes, qkv = rows.project(layer, x, config.ln_epsilon)
    mixed, current = mix(index, _heads(config, qkv, tokens.shape), current)
    mixed = mixed.transpose(0, 2, 1, 3).reshape(tokens.size, -1)
    return rows.finish(layer, x, codes, mixed), current

  split = tensor_parallel.applies(weights, config)
  x = components.embed(weights, config, tokens, positions)
  carry = rows.split(x) if split else x, current
  body = in_parts if split else whole
  x, current = layers_lib.fold(body, carry, weights.layers, config.num_layers)
  if split and tensor_parallel.in_int8(weights.head):
    found = rows.logits(weights, x, config.ln_epsilon)
    return components.cap_logits(weights, config, found), current
  return logits(weights, config, rows.join(x) if split else x), current


def logits(
  weights: weights_lib.Weights, config: config_lib.ModelConfig, x: jax.Array
) -> jax.Array:
  """Logits [..., V] float32 of hidden states x [..., D]."""
  x = components.normalize(x, weights.final_norm, config)
  if weights.head is None:
    found = einsum('...d,vd->...v', x, weights.embedding, weights.head_bias)
  else:
    found = einsum('...d,dv->...v', x, weights.head, weights.head_bias)
  return components.cap_logits(weights, config, found)


def _project(
  layer: weights_lib.Layer,
  config: config_lib.ModelConfig,
  x: jax.Array,
  rotations: Rotations,
  kv_dtype: str,
) -> tuple[jax.Array, jax.Array, cache.KV, cache.KV]:
  """The normalized x, queries [B, N, T, H], and keys and values to cache."""
  h = components.normalize(x, layer.norm, config)
  q, k, v = _products(layer, 'btd,nchd->cbnth', h)
  return h, *_rotated(q, k, v, rotations, kv_dtype)


def _products(
  layer: weights_lib.Layer, equation: str, h: jax.Array
) -> jax.Array:
  """Queries, keys and values of h [A, R, D], as [3, A, N, R, H]."""
  qkv = einsum(equation, h, layer.qkv)
  if layer.qkv_bias is None:
    return qkv
  return qkv + layer.qkv_bias.transpose(1, 0, 2)[:, None, :, None]


def _rotated(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  rotations: Rotations,
  kv_dtype: str,
) -> tuple[jax.Array, cache.KV, cache.KV]:
  """Queries, and keys and values to cache, of [B, N, T, H] each."""
  q = rotary.rotate(q, *rotations)
  keys = rotary.rotate(k, *rotations).transpose(0, 1, 3, 2)
  return q, cache.keys_as(keys, kv_dtype), cache.rows_as(v, kv_dtype)


def _heads(
  config: config_lib.ModelConfig, qkv: jax.Array, shape: tuple[int, ...]
) -> jax.Array:
  """Products [M, N * 3 * H] of rows of `shape` as [3, shape[0], N, T, H]."""
  qkv = qkv.reshape(*shape, config.num_heads, 3, config.head_dim)
  return qkv.transpose(3, 0, 2, 1, 4)


def _finish(
  layer: weights_lib.Layer,
  config: config_lib.ModelConfig,
  x: jax.Array,
  h: jax.Array,
  attended: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Adds attention and the feed-forward layer to the residual `x`.

  If both read `h`, their products are added first: where devices have parts of
  both, those are summed by one all-reduce.

  Returns:
    The layer's result, and what `up` and `down` were multiplied with.
  """
  residual = config.architecture.residual
  attended = _biased(attended, layer.post_bias)
  if residual == architecture_lib.SEQUENTIAL:
    x = x + attended
  if layer.ff_norm is not None:
    h = components.normalize(x, layer.ff_norm, config)
  fed = _biased(einsum('...d,df->...f', h, layer.up), layer.up_bias)
  hidden = components.activate(fed, config)
  down = einsum('...f,fd->...d', hidden, layer.down)
  if residual != architecture_lib.SEQUENTIAL:
    down = attended + down
  return x + _biased(down, layer.down_bias), h, hidden


def _biased(x: jax.Array, bias: jax.Array | None) -> jax.Array:
  return x if bias is None else x + bias
