"""Runs the model: prefill of prompts, and one decode step of beam groups.

Both run `block` for each layer. `architecture.py` describes the differences
between model families. Activations are float32. Matrices have the weights'
number format, and KV has its own, `kv_dtype`. The letters in shapes are: A
prompts or slots, B prompts, S slots, K beams, T tokens, R beams or tokens, D
width, N heads of keys and values, G queries that share them, H head width, V
vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import gpu_rows
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import logical
from saxml_ext.engine import rotary
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import causal_attention
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.numerics import einsum as einsum_lib
from saxml_ext.engine.numerics import quant
from saxml_ext.engine.parallel import tensor_parallel
from saxml_ext.engine.search import search

einsum = einsum_lib.einsum

Rotations = tuple[jax.Array, jax.Array]
Kept = TypeVar('Kept')
KeepKV = Callable[[Any, layers_lib.Index, cache.KV, cache.KV], Any]
Past = Sequence[attention.Source | attention.Earlier]
PastKV = Callable[[Any, layers_lib.Index], Past]


class Taps(NamedTuple):
  """The inputs of the matrices of a layer, in float32.

  If devices hold parts of a layer, the inputs are in the form of
  `tensor_parallel.py`, or None.

  Attributes:
    norm: The input of qkv, [A, R, D].
    mixed: The input of post, [A, N * G, R, H].
    fed: The input of up, [A, R, D]. It equals `norm` if both read one layer
      norm.
    hidden: The input of down, [A, R, F].
  """

  norm: Any
  mixed: jax.Array
  fed: jax.Array | None
  hidden: jax.Array | None


def _operations(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  shape: tuple[int, ...],
) -> components.Whole | tensor_parallel.Rows:
  """Returns the operations of layers for activations of this shape."""
  if tensor_parallel.applies(weights) and config.plain_residual:
    return _rows(config, shape)
  return components.Whole(config)


def _rows(
  config: config_lib.ModelConfig, shape: tuple[int, ...]
) -> tensor_parallel.Rows:
  return tensor_parallel.Rows(shape, config, logical.axes('slots'))


def block(
  layer: weights_lib.Layer,
  operations: components.Whole | tensor_parallel.Rows,
  x: jax.Array,
  attend: Callable[[jax.Array], tuple[jax.Array, Kept]],
  at: jax.Array | None = None,
) -> tuple[jax.Array, Kept, Taps]:
  """Runs one layer.

  Args:
    layer: The weights.
    operations: The operations of the layer.
    x: The residual, in the form of `operations.split`.
    attend: The function that gets the queries, keys and values of
      `operations.project`. It returns the result of attention [A, N * G, R, H],
      and the KV that it kept.
    at: The index of the only token of each prompt to compute, [B, 1, 1] int32.
      None stands for all tokens.

  Returns:
    The next residual, the KV that `attend` kept, and the inputs of the
    matrices. Unused inputs cost nothing.
  """
  h, qkv = operations.project(layer, x)
  mixed, kept = attend(qkv)
  if at is not None:
    operations, x, h, mixed = operations.only(layer, x, h, mixed, at)
  x, fed, hidden = operations.finish(layer, x, h, mixed)
  return x, kept, Taps(h, mixed, fed, hidden)


def run_layer(
  layer: weights_lib.Layer,
  config: config_lib.ModelConfig,
  x: jax.Array,
  rotations: Rotations,
  index: layers_lib.Index,
) -> tuple[jax.Array, Taps]:
  """Runs one layer on prompts.

  Args:
    layer: The weights.
    config: The configuration of the model.
    x: The hidden states, [B, T, D] float32, padded on the right.
    rotations: The tables sin and cos [T, rotary_dim / 2] of
      `rotary.table` for these positions.
    index: The index of the layer.

  Returns:
    The next hidden states [B, T, D], and the inputs of the matrices.
  """

  def attend(qkv: jax.Array) -> tuple[jax.Array, None]:
    rows = components.rotations_of(rotations, index, config)
    q, keys, values = components.rotated(qkv, layer, config, rows, 'float32')
    cap = config.architecture.attention_cap
    q = attention.folded(q)
    mixed = attention.attend_causal(q, keys, values, cap=cap)
    return attention.unfolded(mixed, config.group), None

  x, _, taps = block(layer, components.Whole(config), x, attend)
  return x, taps


def prefill(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  tokens: jax.Array,
  kv_dtype: str,
  last: jax.Array | None = None,
  start: int | jax.Array = 0,
  past: PastKV = lambda kept, layer: (),
  keep: KeepKV = lambda kept, layer, keys, values: kept,
  kept: Any = None,
  offset: jax.Array | None = None,
  packed: jax.Array | None = None,
) -> tuple[jax.Array, Any]:
  """Runs prompts, or a chunk of them, padded on the right.

  Args:
    weights: The weights of the model.
    config: The configuration of the model.
    tokens: The tokens, [B, T] int32.
    kv_dtype: The number format of keys and values.
    last: The index in T of each prompt's last token, [B] int32, if only that
      token is needed. The last layer then computes little more than KV.
    start: The position of the first token. It may be traced, [] int32.
    past: The function that returns the keys of a layer before `start`. It gets
      the last result of `keep` and the index of the layer.
    keep: The function that stores the KV of a layer. It gets its own last
      result, the index of the layer, its keys [B, N, H, T] and its values [B,
      N, T, H]. On TPU T may be rounded up to whole registers. The numbers after
      the prompts' tokens are then arbitrary.
    kept: The first input of `keep`.
    offset: The number to add to the input of the first layer, [B, T, D]
      float32, for a derivative. None adds nothing.
    packed: The position of each token in its own prompt, [T] int32, if a single
      row has all prompts, one after the other. None if each row has one.

  Returns:
    The hidden states before the final layer norm (see `logits`), float32, and
    the last result of `keep`. The hidden states are those of each token [B, T,
    D], or of the last [B, 1, D] if `last` is given. If packed, the last are [1,
    B, D].
  """
  operations = _operations(weights, config, tokens.shape)
  split = isinstance(operations, tensor_parallel.Rows)
  length = tokens.shape[1]
  fused = None
  dynamic = not isinstance(start, int)
  whole = split and not dynamic and start == 0
  if whole and tensor_parallel.attends(config, kv_dtype):
    # The kernel requires whole registers. The padding is on the right.
    tokens = jnp.pad(tokens, ((0, 0), (0, -length % logical.TILE)))
    operations = fused = _rows(config, tokens.shape)
  rotation = config.rotary_dim, config.rotary_base, config.rotary_scaling
  firsts = None if packed is None else jnp.arange(length) - packed
  if dynamic or packed is not None:
    positions = start + jnp.arange(tokens.shape[1])[None]
    if packed is not None:
      positions = packed[None]
    rotations = rotary.rows(positions[0], *rotation)
  else:
    positions = np.arange(start, start + tokens.shape[1])[None]
    rotations = tuple(
      table[start:]
      for table in rotary.table(start + tokens.shape[1], *rotation)
    )

  def layer_at(
    carry, index: layers_lib.Index, layer: weights_lib.Layer, at=None
  ):
    x, kept = carry

    def attend(qkv: jax.Array) -> tuple[jax.Array, Any]:
      if fused is not None:
        mixed, keys, values = fused.attend(qkv, rotations, kv_dtype)
        return mixed, keep(kept, index, keys, values)
      qkv = operations.heads(qkv)
      turns = components.rotations_of(rotations, index, config)
      q, keys, values = components.rotated(qkv, layer, config, turns, kv_dtype)
      stored = kept
      if dynamic:
        # If earlier keys were read first, XLA would copy the whole cache.
        stored = keep(kept, index, keys, values)
      seen, cap = past(stored, index), config.architecture.attention_cap
      if at is None or split:
        q = attention.folded(q)
        if offset is None:
          post = layer.post
          dtype = post.dtype if isinstance(post, jax.Array) else jnp.float32
          mixed = causal_attention.attend(
            q, keys, values, seen, cap, dtype, firsts
          )
        else:  # Kernels have no derivative.
          mixed = attention.attend_causal(q, keys, values, seen, cap=cap)
      else:
        index_of = at.reshape(*[1] * (q.ndim - 4), -1, 1, at.shape[1], 1)
        q = attention.folded(jnp.take_along_axis(q, index_of, -2))
        visible = jnp.arange(length) <= at
        if firsts is not None:
          visible &= jnp.arange(length) >= firsts[at]
        own = attention.Source(keys, values, visible)
        mixed = attention.attend(q, [own, *seen], cap)
      mixed = attention.unfolded(mixed, config.group)
      if not dynamic:
        stored = keep(kept, index, keys, values)
      return mixed, stored

    x, kept, _ = block(layer, operations, x, attend, at)
    return x, kept

  x = components.embed(weights, config, tokens, positions)
  if offset is not None:
    x = x + offset
  count = config.num_layers - (last is not None)
  carry = operations.split(x), kept
  read = layers_lib.at if split else layers_lib.in_place
  x, kept = layers_lib.fold(layer_at, carry, weights.layers, count, read)
  if last is None:
    return operations.join(x)[:, :length], kept
  layer = read(weights.layers, count)
  at = last[:, None, None] if packed is None else last[None, :, None]
  return layer_at((x, kept), count, layer, at)


@einsum_lib.decoding()
def decode(
  weights: weights_lib.Weights,
  config: config_lib.ModelConfig,
  tokens: jax.Array,
  positions: jax.Array,
  rotations: Rotations | None,
  history: decode_attention.History,
  current: cache.Block,
  row: jax.Array,
  kv_dtype: str,
) -> tuple[search.Head, cache.Block]:
  """Computes one token of every beam, except for the logits.

  Args:
    weights: The weights of the model.
    config: The configuration of the model.
    tokens: The last token of each beam, [S, K] int32.
    positions: The positions of these tokens, including the prompt, [S] int32.
    rotations: The tables sin and cos [positions, rotary_dim / 2] of
      `rotary.table`. None to compute the rows of the positions.
    history: The keys that the beams see in addition to `current`.
    current: The suffix block to which this step's keys are written.
    row: The row of `current` to write.
    kv_dtype: The number format of keys and values.

  Returns:
    The functions that compute the logits [S, K, V], and `current` with the step
    written.
  """
  rows: Iterable[jax.Array]
  if rotations is None:
    rows = rotary.rows(
      positions, config.rotary_dim, config.rotary_base, config.rotary_scaling
    )
  else:
    rows = (table[positions] for table in rotations)
  sin, cos = (x[:, None, None] for x in rows)
  rows_per_step = current.length // history.ancestry[-1].shape[-1]
  operations: Any = _operations(weights, config, tokens.shape)
  dtype = jnp.dtype(jnp.float32)
  if gpu_rows.applies(weights, config):
    operations = gpu_rows.GpuRows.for_weights(weights, config, tokens.shape)
    dtype = operations.float_dtype
  attend = decode_attention.over(
    history,
    config.architecture.attention_cap,
    config.group,
    rows_per_step,
    dtype,
  )

  new_rows = components.StepRows(row, rows_per_step, history.slots)

  def layer_at(carry, index: layers_lib.Index, layer: weights_lib.Layer):
    x, current = carry

    def mix(qkv: Any) -> tuple[jax.Array, cache.Block]:
      if isinstance(operations, gpu_rows.GpuRows):
        turns = components.rotations_of((sin, cos), index, config)
        q, written = operations.write_step(
          qkv, turns, current, index, row * rows_per_step, history.slots
        )
      else:
        qkv = operations.heads(qkv)
        q, written = components.write_step(
          qkv, layer, config, (sin, cos), kv_dtype, current, index, new_rows
        )
      mixed = attention.unfolded(attend(q, written, index), config.group)
      return mixed, written

    x, current, _ = block(layer, operations, x, mix)
    return x, current

  x = components.embed(weights, config, tokens, positions)
  carry = operations.split(x), current
  split = isinstance(operations, tensor_parallel.Rows)
  x, current = layers_lib.fold(
    layer_at,
    carry,
    weights.layers,
    config.num_layers,
    layers_lib.at if split else layers_lib.in_place,
  )
  if isinstance(operations, tensor_parallel.Rows) and tensor_parallel.in_int8(
    weights.head
  ):
    result = operations.logits(weights, x)
    result = components.cap_logits(weights, config, result)
    return search.Head(result.shape, lambda: result, None), current
  return _head(weights, config, operations.join(x)), current


def _head(
  weights: weights_lib.Weights, config: config_lib.ModelConfig, x: jax.Array
) -> search.Head:
  """Returns the functions for hidden states [S, K, D] of a decode step."""
  find = None
  head = weights.head
  capped = config.architecture.logit_cap is not None
  if einsum_lib.multiplied_by_kernel(head) and not capped:
    find = functools.partial(_likeliest, weights, head, config, x)
  return search.Head(
    (*x.shape[:-1], weights.head_bias.shape[0]),
    einsum_lib.decoding()(lambda: logits(weights, config, x)),
    find,
  )


@einsum_lib.decoding()
def _likeliest(
  weights: weights_lib.Weights,
  head: quant.QuantizedArray,
  config: config_lib.ModelConfig,
  x: jax.Array,
  count: int,
) -> search.Likeliest:
  x = components.normalize(x, components.final_norm(weights, config), config)
  peak, total, values, tokens = einsum_lib.likeliest(
    '...d,dv->...v', x, head, weights.head_bias, count
  )
  return search.Likeliest(peak[..., None], total[..., None], values, tokens)


def logits(
  weights: weights_lib.Weights, config: config_lib.ModelConfig, x: jax.Array
) -> jax.Array:
  """Returns logits [..., V] float32 of hidden states x [..., D]."""
  x = components.normalize(x, components.final_norm(weights, config), config)
  if weights.head is None:
    result = einsum('...d,vd->...v', x, weights.embedding, weights.head_bias)
  else:
    result = einsum('...d,dv->...v', x, weights.head, weights.head_bias)
  return components.cap_logits(weights, config, result)
