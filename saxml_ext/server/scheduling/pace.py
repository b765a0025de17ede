"""How fast requests are answered, to tell callers when to come again."""

import collections
from collections.abc import Callable
import time

_WINDOW = 64
# Before anything was answered nothing is known.
_UNKNOWN_SECS = 0.1
_LEAST_SECS = 0.01
_MOST_SECS = 10.0


class Pace:
  """The rate of the last answers. Not thread-safe."""

  def __init__(self, clock: Callable[[], float] = time.monotonic):
    self._clock = clock
    self._answered: collections.deque[float] = collections.deque(maxlen=_WINDOW)

  def done(self, count: int) -> None:
    """Counts requests that were answered now."""
    self._answered.extend([self._clock()] * count)

  def seconds_per_request(self) -> float:
    """In how many seconds a full queue may have room for one more.

    The mean over the last answers and the time since them, so that an engine
    that hangs puts callers off for longer and longer; within 10 ms and 10 s.
    """
    if not self._answered:
      return _UNKNOWN_SECS
    passed = self._clock() - self._answered[0]
    return min(max(passed / len(self._answered), _LEAST_SECS), _MOST_SECS)
