"""Answers of a group's followers to one entry of its log."""

from collections.abc import Collection
import threading
import time
from typing import Any


class Answers:
  """Waits until every follower has answered."""

  def __init__(self, processes: Collection[int]):
    """Takes the numbers of those who are asked."""
    self._missing = set(processes)
    self._answers: dict[int, Any] = {}
    self._changed = threading.Condition()

  def put(self, process: int, answer: Any) -> None:
    """Notes an answer."""
    with self._changed:
      self._missing.discard(process)
      self._answers[process] = answer
      self._changed.notify_all()

  def wait(self, seconds: float) -> list[int]:
    """Waits for all; returns the numbers of those that are missing still."""
    deadline = time.monotonic() + seconds
    with self._changed:
      self._changed.wait_for(
        lambda: not self._missing, max(0.0, deadline - time.monotonic())
      )
      return sorted(self._missing)

  def all(self) -> dict[int, Any]:
    """The answers so far, by number of the process."""
    with self._changed:
      return dict(self._answers)
