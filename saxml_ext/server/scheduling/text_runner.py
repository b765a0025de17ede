"""The engine methods that only models on one host serve."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class TextRunner(Protocol):
  """An engine that embeds and differentiates texts, see `engine.texts`."""

  def embed(self, tokens: np.ndarray) -> np.ndarray:
    """Returns the embedding of a text [T] as [D] float32."""

  def gradient(
    self, prefix: np.ndarray, suffix: np.ndarray
  ) -> tuple[float, Mapping[str, np.ndarray]]:
    """Returns log p(suffix | prefix) and its gradients by name."""
