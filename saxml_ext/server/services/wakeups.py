"""Answers on their way from the scheduler's thread to the event loop.

To wake an event loop from another thread costs a system call and a switch of
threads, as much as all else that is done for a small request. Answers that
are given together share one.
"""

import asyncio
import collections
from concurrent import futures
import functools
from typing import Any


class Wakeups:
  """Lets coroutines of one event loop wait for other threads' futures."""

  def __init__(self, loop: asyncio.AbstractEventLoop):
    self._loop = loop
    self._answered: collections.deque[asyncio.Future] = collections.deque()
    self._waking = False

  async def wait(self, future: futures.Future) -> Any:
    """The result of a future; raises what it raises.

    Cancelling the coroutine cancels the future.
    """
    waiter = self._loop.create_future()
    future.add_done_callback(functools.partial(self._done, waiter))
    try:
      await waiter
    except asyncio.CancelledError:
      future.cancel()
      raise
    return future.result()

  def _done(self, waiter: asyncio.Future, _: futures.Future) -> None:
    # On any thread. First the deque, then the flag; `_deliver` the other way
    # round: so none is forgotten, at worst the loop wakes once in vain.
    self._answered.append(waiter)
    if not self._waking:
      self._waking = True
      self._loop.call_soon_threadsafe(self._deliver)

  def _deliver(self) -> None:
    self._waking = False
    while self._answered:
      waiter = self._answered.popleft()
      if not waiter.done():  # Else its coroutine was cancelled.
        waiter.set_result(None)
