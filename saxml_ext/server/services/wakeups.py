"""Answers on their way from the scheduler's thread to the event loop.

To wake an event loop from another thread costs a system call and a switch of
threads, as much as all else that is done for a small request. Answers that
are given together share one.
"""

import asyncio
import collections
from collections.abc import AsyncGenerator, Callable
from concurrent import futures
import dataclasses
import functools
from typing import Any, TypeAlias

Begin: TypeAlias = Callable[[Callable[[Any], None]], futures.Future]


@dataclasses.dataclass(frozen=True)
class News:
  """What has become of a request.

  Attributes:
    state: its progress, or at the end its result.
    is_last: whether this is the result.
  """

  state: Any
  is_last: bool


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

  async def follow(self, begin: Begin) -> AsyncGenerator[News, None]:
    """Tells of a request while it is answered.

    Only the newest progress is kept until it is asked for, so that a reader who
    is slow misses some and delays nobody.

    Args:
      begin: submits the request; gets the function to call with its progress,
        on any thread, and returns the future of its result.

    Raises:
      Exception: what the future raises. Closing the iterator, or cancelling the
        coroutine that reads it, cancels the future.
    """
    # At most one of each; other threads write, the loop's takes.
    newest: collections.deque[Any] = collections.deque(maxlen=1)
    waiter = self._loop.create_future()

    def on_progress(progress: Any) -> None:
      newest.append(progress)
      self._wake(waiter)

    future = begin(on_progress)
    future.add_done_callback(lambda _: self._wake(waiter))
    try:
      while not future.done():
        await waiter
        waiter = self._loop.create_future()
        if newest and not future.done():
          yield News(newest.pop(), is_last=False)
      yield News(future.result(), is_last=True)
    finally:
      future.cancel()

  def _done(self, waiter: asyncio.Future, _: futures.Future) -> None:
    self._wake(waiter)

  def _wake(self, waiter: asyncio.Future) -> None:
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
