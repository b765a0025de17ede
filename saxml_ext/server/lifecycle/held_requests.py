"""Requests held while the weights of their model are replaced.

Where there is no room for the old weights and the new ones together, nobody can
be answered for as long as the new ones take to load. One replica may be all
there is, so requests wait here for the new ones instead of being refused: as
many as the model's queue takes, and none of them beyond its deadline.
"""

from concurrent import futures
import threading

from saxml_ext.common import errors

# A load that takes much longer than a request is no reason to ask every 10 ms.
_RETRY_SECS = 1.0


class Hold:
  """Those who wait for one replacement. Safe to use from several threads."""

  def __init__(self, key: str, limit: int):
    """Holds nobody yet.

    Args:
      key: of the model, for messages.
      limit: requests held before further ones are refused.
    """
    self._key = key
    self._limit = limit
    self._lock = threading.Lock()
    self._waiting: set[futures.Future] = set()
    self._released = False

  def wait(self) -> futures.Future:
    """A future that is done, with None, when it is time to ask again.

    Cancelling it makes room for another request.

    Raises:
      errors.ResourceExhausted: as many requests as allowed are held.
    """
    future: futures.Future = futures.Future()
    with self._lock:
      if not self._released:
        if len(self._waiting) >= self._limit:
          raise errors.ResourceExhausted(
            f'Too many requests: {self._limit} wait until {self._key} is'
            ' reloaded, which is the limit (BATCH_SIZE times MAX_LIVE_BATCHES);'
            ' try again later',
            retry_after=_RETRY_SECS,
          )
        self._waiting.add(future)
        future.add_done_callback(self._done)
        return future
    future.set_result(None)
    return future

  def release(self) -> None:
    """Lets everybody go on, now and later."""
    with self._lock:
      self._released = True
      waiting = list(self._waiting)
    for future in waiting:
      if future.set_running_or_notify_cancel():
        future.set_result(None)

  def _done(self, future: futures.Future) -> None:
    with self._lock:
      self._waiting.discard(future)
