"""What the scheduler needs of an engine."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np


class Runner(Protocol):
  """An engine with slots, see `engine.runner.Runner`.

  Requests and results are the engine's own; of a request the scheduler looks at
  its `tokens` [T] alone.

  Attributes:
    num_slots: requests decoded together.
    progress: after a step, slot -> how far its answer is, of those slots that
      go on and whose requests ask for it (`stream`).
  """

  num_slots: int

  @property
  def progress(self) -> Mapping[int, Any]: ...

  def check(self, request: Any) -> None:
    """Raises ValueError for a request that the engine cannot answer."""

  def prefill_and_insert(self, requests: Mapping[int, Any]) -> None:
    """Starts requests in the free slots they are keyed by."""

  def step(self, max_steps: int | None = None) -> dict[int, Any]:
    """Decodes some steps; returns the results of slots that finished.

    Args:
      max_steps: at most so many; None leaves it to the engine.
    """

  def interrupt(self) -> None:
    """Has the step in progress, or the next one, return soon.

    Any thread may call it. An engine that cannot do so does nothing; its calls
    are short where that matters, see `Scheduler`.
    """

  def release(self, slot: int) -> None:
    """Frees a slot whose request is given up."""

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """Sum of log p(suffix | prefix)."""


class TextRunner(Protocol):
  """An engine that embeds and differentiates texts, if its settings ask so."""

  def embed(self, tokens: np.ndarray) -> np.ndarray:
    """The embedding [D] of a text [T]."""

  def gradient(
    self, prefix: np.ndarray, suffix: np.ndarray
  ) -> tuple[float, Mapping[str, np.ndarray]]:
    """`Runner.score` and its gradients by name."""
