"""Counts the calls that have found a model and may still submit to its engine.

Between the moment a call finds its model and the moment the model's scheduler
has its request the prompt is tokenized, milliseconds on another thread. A model
that is replaced waits for these calls, so that none of them meets a scheduler
that is closed.
"""

import threading
import time


class Leases:
  """A number of calls. Safe to use from several threads."""

  def __init__(self):
    self._changed = threading.Condition()
    self._count = 0

  def enter(self) -> None:
    """A call uses the model from now on."""
    with self._changed:
      self._count += 1

  def leave(self) -> None:
    """A call has ended, whatever came of it."""
    with self._changed:
      self._count -= 1
      if not self._count:
        self._changed.notify_all()

  def wait(self, linger: float, timeout: float) -> bool:
    """Waits until no call uses the model any more.

    Args:
      linger: seconds to wait in any case, for a call that has just found the
        model and not entered yet.
      timeout: seconds to wait at most.

    Returns:
      Whether there is none; else there are some that take long.
    """
    time.sleep(linger)
    with self._changed:
      return self._changed.wait_for(
        lambda: not self._count, max(timeout - linger, 0)
      )
