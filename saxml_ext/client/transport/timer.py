"""Runs functions later, all on one thread."""

from collections.abc import Callable
import heapq
import itertools
import logging
import threading
import time

_logger = logging.getLogger(__name__)


class Timer:
  """Functions due at some time. Thread-safe.

  They run one after another, so they must be short. What they raise is logged.
  """

  def __init__(self):
    self._changed = threading.Condition()
    self._order = itertools.count()
    self._due: list[tuple[float, int, Callable[[], None]]] = []
    self._running = False

  def call_after(self, delay: float, function: Callable[[], None]) -> None:
    """Calls `function` in `delay` seconds."""
    entry = (time.monotonic() + delay, next(self._order), function)
    with self._changed:
      heapq.heappush(self._due, entry)
      if not self._running:
        self._running = True
        threading.Thread(target=self._run, name='timer', daemon=True).start()
      elif self._due[0] is entry:
        self._changed.notify()

  def _run(self) -> None:
    while True:
      with self._changed:
        while not self._due or self._due[0][0] > time.monotonic():
          wait = self._due[0][0] - time.monotonic() if self._due else None
          self._changed.wait(wait)
        function = heapq.heappop(self._due)[2]
      try:
        function()
      except Exception:  # pylint: disable=broad-exception-caught
        # The functions of others are still due.
        _logger.exception('a delayed function failed')


timer = Timer()
