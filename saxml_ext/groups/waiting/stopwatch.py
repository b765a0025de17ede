"""Notices when a call of an engine takes longer than it may."""

from collections.abc import Callable, Iterator
import contextlib
import threading
import time
from typing import NamedTuple

# Seconds between two looks at how long the present call takes.
_LOOK = 0.25


class Call(NamedTuple):
  """A call that is under way.

  Attributes:
    sequence: number of its entry in the log.
    what: it is, in a few words.
    begin: when it began, monotonic seconds.
    limit: seconds that it may take.
  """

  sequence: int
  what: str
  begin: float
  limit: float


class Stopwatch:
  """Watches one call at a time, from a thread of its own."""

  def __init__(self, on_late: Callable[[Call], None]):
    """Does nothing before `start`.

    Args:
      on_late: called once, with the first call that takes too long.
    """
    self._on_late = on_late
    self._call: Call | None = None

  def start(self) -> None:
    """Begins to watch."""
    threading.Thread(target=self._watch, daemon=True).start()

  @contextlib.contextmanager
  def timing(self, sequence: int, what: str, limit: float) -> Iterator[None]:
    """Watches a call while the context lasts; see `Call`."""
    self._call = Call(sequence, what, time.monotonic(), limit)
    try:
      yield
    finally:
      self._call = None

  def _watch(self) -> None:
    while True:
      time.sleep(_LOOK)
      call = self._call
      if call and time.monotonic() > call.begin + call.limit:
        self._on_late(call)
        return
