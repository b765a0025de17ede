"""Whether this server can compute for new requests.

Stock Sax calls a server dormant whose accelerators were taken away; such a
server may hold requests until they come back, or with --early_reject_on_dormant
refuse them at once for clients to go elsewhere. This server's devices stay. It
is dormant once it was told to stop: without the flag it still answers what
arrives until it has left its cell, with it such requests are refused at once.
"""

import collections
from collections.abc import Callable
import threading
import time

from saxml_ext.common import errors

# Seconds over which stock's GetStatus tells the rate of refusals.
_WINDOW = 10.0


class Dormancy:
  """The state and what was refused for it. Safe to use from several threads."""

  def __init__(
    self,
    early_reject: bool = False,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Starts active.

    Args:
      early_reject: whether requests are refused while dormant.
      clock: monotonic time.
    """
    self._early_reject = early_reject
    self._clock = clock
    self._lock = threading.Lock()
    self._refused: collections.deque[float] = collections.deque()
    self._reason = ''

  @property
  def reason(self) -> str:
    """Why it is dormant; '' while it is active."""
    return self._reason

  def begin(self, reason: str) -> None:
    """Makes the server dormant."""
    self._reason = reason

  def check(self) -> None:
    """Refuses a request, if such are refused now.

    Raises:
      errors.Unavailable: the server is dormant, and refuses early.
    """
    if not self._reason or not self._early_reject:
      return
    with self._lock:
      self._forget()
      self._refused.append(self._clock())
    raise errors.Unavailable(
      f'this model server is dormant: {self._reason}; try another one'
    )

  def rate(self) -> float:
    """Requests refused per second, over the last 10 s."""
    with self._lock:
      self._forget()
      return len(self._refused) / _WINDOW

  def _forget(self) -> None:
    oldest = self._clock() - _WINDOW
    while self._refused and self._refused[0] <= oldest:
      self._refused.popleft()
