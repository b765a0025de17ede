"""Computes scores, embeddings and gradients of whole texts.

The device programs are pure functions of the weights. `Texts` calls them for a
Runner, and needs no slots.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import quant

# On CPU a kernel without a derivative computes products of fewer rows; see
# `einsum.py`.
_LEAST_ROWS = 32


def score(
  settings: state.Settings,
  weights: weights_lib.Weights,
  tokens: jax.Array,
  start: jax.Array,
  end: jax.Array,
) -> jax.Array:
  """Returns the sum of log p(tokens[i] | tokens[:i]) for start <= i < end.

  Args:
    settings: The static settings.
    weights: The weights of the model.
    tokens: The tokens, [T] int32, padded on the right.
    start: The first index, at least 1.
    end: The index after the last, at most T.
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
  """Returns the hidden state after the final layer norm, [D] float32.

  It is that of the last token or the mean over all tokens, depending on
  settings.engine.embedding.

  Args:
    settings: The static settings.
    weights: The weights of the model.
    tokens: The tokens, [T] int32, padded on the right.
    length: The number of tokens without padding, at least 1, [] int32.
  """
  takes_last = settings.engine.embedding == 'last_token'
  x, _ = model.prefill(
    weights,
    settings.model,
    tokens[None],
    settings.engine.kv_dtype,
    last=length[None] - 1 if takes_last else None,
  )
  x = components.normalize(x[0], weights.final_norm, settings.model)
  if takes_last:
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
  """Returns `score`, and its gradient by the first layer's input, [T, D].

  For GPT-J the input is the tokens' rows of the embedding. If an architecture
  scales these rows, the input is scaled.

  Args:
    settings: The static settings.
    weights: The weights of the model.
    tokens: The tokens, as in `score`.
    start: The first index, as in `score`.
    end: The index after the last, as in `score`.
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
  """Returns the result of `score` for hidden states x [1, T, D]."""
  logits = model.logits(weights, settings.model, x[0, :-1])
  log_probs = jax.nn.log_softmax(logits)
  chosen = jnp.take_along_axis(log_probs, tokens[1:, None], 1)[:, 0]
  index = jnp.arange(1, tokens.shape[0])
  return jnp.where((index >= start) & (index < end), chosen, 0).sum()


def gradient_length(settings: state.Settings) -> int:
  """Returns the length T of `gradient`, at least that of `score`."""
  return max(settings.max_positions, _LEAST_ROWS)


@dataclasses.dataclass(frozen=True, order=True)
class Score(state.Key):
  """The program `score` for the longest possible sequence."""

  name = 'score'

  def program(self, shapes: state.Shapes) -> state.Program:
    s = shapes.settings
    args = (state.int32(s.max_positions), state.int32(), state.int32())
    return state.Program(functools.partial(score, s), args, _floats())


@dataclasses.dataclass(frozen=True, order=True)
class Embed(state.Key):
  """The program `embed` for texts of at most `length` tokens."""

  name = 'embed'
  length: int

  def program(self, shapes: state.Shapes) -> state.Program:
    s = shapes.settings
    args = (state.int32(self.length), state.int32())
    result = _floats(s.model.model_dim)
    return state.Program(functools.partial(embed, s), args, result)


@dataclasses.dataclass(frozen=True, order=True)
class Gradient(state.Key):
  """The program `gradient` for the longest possible sequence."""

  name = 'gradient'

  def program(self, shapes: state.Shapes) -> state.Program:
    s = shapes.settings
    length = gradient_length(s)
    args = (state.int32(length), state.int32(), state.int32())
    results = (_floats(), _floats(length, s.model.model_dim))
    return state.Program(functools.partial(gradient, s), args, results)


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.float32)


def keys(engine: config_lib.EngineConfig) -> list[state.Key]:
  """Returns the programs for the engine's embeddings and gradients."""
  result: list[state.Key] = []
  if engine.embedding is not None:
    result.extend(map(Embed, engine.buckets))
  if engine.gradients:
    result.append(Gradient())
  return result


def check(
  engine: config_lib.EngineConfig,
  weights: weights_lib.Weights,
  mesh: jax.sharding.Mesh | None,
) -> None:
  """Checks that the engine supports the configured embeddings and gradients.

  Raises:
    ValueError: The model runs on several hosts, or gradients are required of a
      model that rounds activations.
  """
  if not keys(engine):
    return
  if mesh is not None and mesh.is_multi_process:
    raise ValueError(
      'models on several hosts support neither embeddings nor gradients.'
      ' Publish without them, or on one host.'
    )

  def is_matrix(x: Any) -> bool:
    return isinstance(x, quant.QuantizedArray)

  rounded = any(
    is_matrix(x) and x.activations in (*quant.CODES, quant.FINE, quant.INT4)
    for x in jax.tree.leaves(weights, is_leaf=is_matrix)
  )
  if engine.gradients and rounded:
    raise ValueError(
      'activations are rounded to int8, so gradients are not supported. Serve'
      ' the model in float, or with int8 weights only.'
    )


class Texts:
  """Computes scores, embeddings and gradients, without using a slot."""

  def __init__(
    self,
    run: Callable[..., Any],
    settings: state.Settings,
    checks: request_lib.Checks,
  ):
    """Stores the function that runs programs, the settings and the checks."""
    self._run = run
    self._settings = settings
    self._checks = checks

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """Returns the sum of log-probabilities of a suffix after a prefix.

    Args:
      prefix: The tokens of the prefix, [N], N >= 1.
      suffix: The tokens of the suffix, [M].

    Raises:
      ValueError: The texts exceed the limits.
    """
    args = self._joined(prefix, suffix, self._settings.max_positions)
    return float(self._run(Score(), *args))

  def embed(self, tokens: np.ndarray) -> np.ndarray:
    """Returns the embedding of a text [T], [D] float32; see `embed`.

    Raises:
      ValueError: The text exceeds the limits, or the engine does not support
        embeddings.
    """
    if self._settings.engine.embedding is None:
      raise ValueError(
        'this model is served without embeddings. Set'
        ' TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME to publish it with them.'
      )
    tokens = self._checks.prompt(tokens)
    length = config_lib.at_least(len(tokens), self._settings.engine.buckets)
    padded = self._padded(tokens, length)
    return np.asarray(self._run(Embed(length), padded, np.int32(len(tokens))))

  def gradient(
    self, prefix: np.ndarray, suffix: np.ndarray
  ) -> tuple[float, dict[str, np.ndarray]]:
    """Returns `score`, and its gradients by name.

    "embeddings" [N + M, D] float32 is the gradient by the embeddings of the
    tokens of prefix and suffix; see `gradient`.

    Raises:
      ValueError: The texts exceed the limits, or the engine does not support
        gradients.
    """
    if not self._settings.engine.gradients:
      raise ValueError(
        'this model is served without gradients. Set'
        ' GRADIENT_WRT_INPUT_TENSOR_NAMES to publish it with them.'
      )
    args = self._joined(prefix, suffix, gradient_length(self._settings))
    value, gradient = self._run(Gradient(), *args)
    return float(value), {'embeddings': np.asarray(gradient)[: args[-1]]}

  def _joined(
    self, prefix: np.ndarray, suffix: np.ndarray, length: int
  ) -> tuple[np.ndarray, np.int32, np.int32]:
    """Returns the padded tokens of both texts, and the bounds of the suffix.

    Raises:
      ValueError: The texts exceed the limits.
    """
    prefix = self._checks.tokens('prefix', prefix)
    suffix = self._checks.tokens('suffix', suffix)
    limit = self._settings.max_positions
    total = len(prefix) + len(suffix)
    if total > limit:
      raise ValueError(
        f'prefix and suffix have {total} tokens, above the limit of {limit}'
        ' (max_prompt + max_new_tokens). Shorten them or raise the limits.'
      )
    tokens = self._padded(np.concatenate([prefix, suffix]), length)
    return tokens, np.int32(len(prefix)), np.int32(total)

  def _padded(self, tokens: np.ndarray, length: int) -> np.ndarray:
    result = np.full(length, self._settings.engine.pad_id, np.int32)
    result[: len(tokens)] = tokens
    return result
