"""A lock that is taken in the order in which it was asked for."""

import collections
import threading


class FairLock:
  """Mutual exclusion, first come, first served.

  A thread that gives a `threading.Lock` back and asks for it again at once
  mostly gets it, so that of two models that decode one could starve.
  """

  def __init__(self) -> None:
    self._guard = threading.Lock()
    self._held = False
    self._waiting: collections.deque[threading.Lock] = collections.deque()

  def __enter__(self) -> None:
    with self._guard:
      if not self._held:
        self._held = True
        return
      turn = threading.Lock()
      turn.acquire()
      self._waiting.append(turn)
    turn.acquire()

  def __exit__(self, *unused) -> None:
    with self._guard:
      if self._waiting:
        self._waiting.popleft().release()  # It stays held, by the next one.
      else:
        self._held = False
