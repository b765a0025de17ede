"""What a Runner does with whole texts, beside its slots."""

from collections.abc import Callable
from typing import Any

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import state
from saxml_ext.engine.functions import encodings


class Texts:
  """Scores, embeddings and gradients; none of them needs a slot."""

  def __init__(
    self,
    run: Callable[..., Any],
    settings: state.Settings,
    checks: request_lib.Checks,
  ):
    """Takes what runs programs, their settings, and the limits of texts."""
    self._run = run
    self._settings = settings
    self._checks = checks

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """Sum of log-probabilities of `suffix` [M] given `prefix` [N], N >= 1.

    Raises:
      ValueError: out of limits.
    """
    tokens = self._joined(prefix, suffix)
    value = self._run(
      encodings.Score(),
      self._padded(tokens, self._settings.max_positions),
      np.int32(len(prefix)),
      np.int32(len(tokens)),
    )
    return float(value)

  def embed(self, tokens: np.ndarray) -> np.ndarray:
    """The embedding of a text [T], [D] float32; see `encodings.embed`.

    Raises:
      ValueError: out of limits, or the engine makes no embeddings.
    """
    if self._settings.engine.embedding is None:
      raise ValueError(
        'this model is served without embeddings; set'
        ' TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME to publish it with them.'
      )
    tokens = self._checks.prompt(tokens)
    length = config_lib.at_least(len(tokens), self._settings.engine.buckets)
    found = self._run(
      encodings.Embed(length),
      self._padded(tokens, length),
      np.int32(len(tokens)),
    )
    return np.asarray(found)

  def gradient(
    self, prefix: np.ndarray, suffix: np.ndarray
  ) -> tuple[float, dict[str, np.ndarray]]:
    """`score`, and its gradients by name.

    "embeddings" [N + M, D] float32 is that by the embeddings of the tokens of
    prefix and suffix; see `encodings.gradient`.

    Raises:
      ValueError: out of limits, or the engine makes no gradients.
    """
    if not self._settings.engine.gradients:
      raise ValueError(
        'this model is served without gradients; set'
        ' GRADIENT_WRT_INPUT_TENSOR_NAMES to publish it with them.'
      )
    tokens = self._joined(prefix, suffix)
    value, found = self._run(
      encodings.Gradient(),
      self._padded(tokens, encodings.gradient_length(self._settings)),
      np.int32(len(prefix)),
      np.int32(len(tokens)),
    )
    return float(value), {'embeddings': np.asarray(found)[: len(tokens)]}

  def _joined(self, prefix: np.ndarray, suffix: np.ndarray) -> np.ndarray:
    """Tokens of both; ValueError if they are out of limits."""
    prefix = self._checks.tokens('prefix', prefix)
    suffix = self._checks.tokens('suffix', suffix)
    limit = self._settings.max_positions
    total = len(prefix) + len(suffix)
    if total > limit:
      raise ValueError(
        f'prefix and suffix have {total} tokens; at most {limit} (max_prompt'
        ' + max_new_tokens). Shorten them or serve with larger limits.'
      )
    return np.concatenate([prefix, suffix])

  def _padded(self, tokens: np.ndarray, length: int) -> np.ndarray:
    result = np.full(length, self._settings.engine.pad_id, np.int32)
    result[: len(tokens)] = tokens
    return result
