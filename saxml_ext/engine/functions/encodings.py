"""What a model makes of a whole text: scores, embeddings, gradients.

The programs beside decoding; each is a pure function of the weights.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.functions import shapes as shapes_lib
from saxml_ext.engine.numerics import quant

# Products of fewer rows are computed on the CPU by a kernel that has no
# derivative; see `einsum.py`.
_LEAST_ROWS = 32


def score(
  settings: state.Settings,
  weights: weights_lib.Weights,
  tokens: jax.Array,
  start: jax.Array,
  end: jax.Array,
) -> jax.Array:
  """Sum of log p(tokens[i] | tokens[:i]) for start <= i < end; [] float32.

  Args:
    settings: static.
    weights: the model.
    tokens: [T] int32, padded on the right.
    start: at least 1.
    end: at most T.
  """
  kv_dtype = settings.engine.kv_dtype
  x, _ = model.prefill(weights, settings.model, tokens[None], kv_dtype)
  return _sum_of_log_probs(settings, weights, x, tokens, start, end)


def embed(
  settings: state.Settings,
  weights: weights_lib.Weights,
  tokens: jax.Array,
  length: jax.Array,
) -> jax.Array:
  """The hidden state after the final layer norm, [D] float32.

  Of the last token, or the mean over all tokens, as settings.engine.embedding
  says.

  Args:
    settings: static.
    weights: the model.
    tokens: [T] int32, padded on the right.
    length: [] int32, those that count, at least 1.
  """
  of_last = settings.engine.embedding == 'last_token'
  x, _ = model.prefill(
    weights,
    settings.model,
    tokens[None],
    settings.engine.kv_dtype,
    last=length[None] - 1 if of_last else None,
  )
  x = components.normalize(x[0], weights.final_norm, settings.model)
  if of_last:
    return x[0]
  within = jnp.arange(len(tokens)) < length
  return jnp.where(within[:, None], x, 0).sum(0) / length


def gradient(
  settings: state.Settings,
  weights: weights_lib.Weights,
  tokens: jax.Array,
  start: jax.Array,
  end: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """`score`, and its gradient by what enters the first layer, [T, D] float32.

  For GPT-J that is the tokens' rows of the embedding; where an architecture
  scales them, they are scaled.

  Args:
    settings: static.
    weights: the model.
    tokens: as of `score`, and so are the others.
    start: likewise.
    end: likewise.
  """
  kv_dtype = settings.engine.kv_dtype
  # Rounding to int8 has no derivative.
  kv_dtype = 'float32' if kv_dtype == 'int8' else kv_dtype

  def value(offset: jax.Array) -> jax.Array:
    x, _ = model.prefill(
      weights, settings.model, tokens[None], kv_dtype, offset=offset[None]
    )
    return _sum_of_log_probs(settings, weights, x, tokens, start, end)

  zeros = jnp.zeros((len(tokens), settings.model.model_dim), jnp.float32)
  return jax.value_and_grad(value)(zeros)


def _sum_of_log_probs(
  settings: state.Settings,
  weights: weights_lib.Weights,
  x: jax.Array,
  tokens: jax.Array,
  start: jax.Array,
  end: jax.Array,
) -> jax.Array:
  """As `score`, of hidden states x [1, T, D]."""
  logits = model.logits(weights, settings.model, x[0, :-1])
  log_probs = jax.nn.log_softmax(logits)
  chosen = jnp.take_along_axis(log_probs, tokens[1:, None], 1)[:, 0]
  index = jnp.arange(1, tokens.shape[0])
  return jnp.where((index >= start) & (index < end), chosen, 0).sum()


def gradient_length(settings: state.Settings) -> int:
  """Places T of `gradient`, a few more than `score` has if these are few."""
  return max(settings.max_positions, _LEAST_ROWS)


@dataclasses.dataclass(frozen=True)
class Score:
  """`score` of the longest sequence that there can be."""

  def __str__(self) -> str:
    return 'score'

  def program(self, shapes: shapes_lib.Shapes) -> shapes_lib.Program:
    s = shapes.settings
    int32 = shapes_lib.int32
    args = (int32(s.max_positions), int32(), int32())
    result = jax.ShapeDtypeStruct((), jnp.float32)
    return shapes_lib.Program(functools.partial(score, s), args, result)


@dataclasses.dataclass(frozen=True, order=True)
class Embed:
  """`embed` of texts of up to `length` tokens."""

  length: int

  def __str__(self) -> str:
    return f'embed {self.length}'

  def program(self, shapes: shapes_lib.Shapes) -> shapes_lib.Program:
    s = shapes.settings
    args = (shapes_lib.int32(self.length), shapes_lib.int32())
    result = jax.ShapeDtypeStruct((s.model.model_dim,), jnp.float32)
    return shapes_lib.Program(functools.partial(embed, s), args, result)


@dataclasses.dataclass(frozen=True)
class Gradient:
  """`gradient` of the longest sequence that there can be."""

  def __str__(self) -> str:
    return 'gradient'

  def program(self, shapes: shapes_lib.Shapes) -> shapes_lib.Program:
    s = shapes.settings
    length, int32 = gradient_length(s), shapes_lib.int32
    results = (
      jax.ShapeDtypeStruct((), jnp.float32),
      jax.ShapeDtypeStruct((length, s.model.model_dim), jnp.float32),
    )
    args = (int32(length), int32(), int32())
    return shapes_lib.Program(functools.partial(gradient, s), args, results)


def keys(engine: config_lib.EngineConfig) -> list[Embed | Gradient]:
  """The programs of an engine that is asked for embeddings or gradients."""
  found: list[Embed | Gradient] = []
  if engine.embedding is not None:
    found.extend(map(Embed, engine.buckets))
  if engine.gradients:
    found.append(Gradient())
  return found


def check(
  engine: config_lib.EngineConfig,
  weights: weights_lib.Weights,
  mesh: jax.sharding.Mesh | None,
) -> None:
  """Refuses engines that cannot do what they are asked for here.

  Raises:
    ValueError: gradients of a model whose activations are rounded, or anything
      of a model on several hosts.
  """
  if not keys(engine):
    return
  if mesh is not None and mesh.is_multi_process:
    raise ValueError(
      'models on several hosts serve neither embeddings nor gradients; publish'
      ' without them, or on one host.'
    )

  def is_matrix(x: Any) -> bool:
    return isinstance(x, quant.QuantizedArray)

  rounded = any(
    is_matrix(x) and x.activations is None
    for x in jax.tree.leaves(weights, is_leaf=is_matrix)
  )
  if engine.gradients and rounded:
    raise ValueError(
      'gradients were asked for, but activations are rounded to int8, which has'
      ' no derivative; serve the model in float, or with int8 weights alone.'
    )
