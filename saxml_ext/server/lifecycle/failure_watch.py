"""Failures of engines, and of loads, as the table of models needs them."""

from collections.abc import Callable
import threading
import traceback
from typing import Generic, TypeVar

_ModelT = TypeVar('_ModelT')


class FailureWatch(Generic[_ModelT]):
  """Passes an engine's failure on, once its model is in the table."""

  def __init__(self, notify: Callable[[str, _ModelT, str], None], key: str):
    """Watches for one model.

    Args:
      notify: called with the key, the model and the reason.
      key: of the model.
    """
    self._notify = notify
    self._key = key
    self._lock = threading.Lock()
    self._model: _ModelT | None = None
    self._reason: str | None = None

  def on_failure(self, reason: str) -> None:
    """The engine has failed; maybe before its model is in the table."""
    with self._lock:
      self._reason = reason
      model = self._model
    if model is not None:
      self._notify(self._key, model, reason)

  def begin(self, model: _ModelT) -> None:
    """The model is in the table."""
    with self._lock:
      self._model = model
      reason = self._reason
    if reason is not None:
      self._notify(self._key, model, reason)


def drop_frames(error: BaseException | None) -> None:
  """Lets go of what functions that failed had in their variables.

  A traceback keeps it otherwise, such as the weights that were read until
  then, as long as anybody keeps the error.
  """
  while error is not None:
    traceback.clear_frames(error.__traceback__)
    error = error.__cause__ or error.__context__
