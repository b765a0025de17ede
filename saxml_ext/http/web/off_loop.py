"""Runs the slow parts of requests in threads, away from the event loop."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent import futures
from typing import Any, TypeVar

from saxml_ext.http.protocol import problems

# The number of threads, the calls with one key that run at a time, and the time
# that a further one waits for its turn, in seconds.
_MOST_THREADS = 32
_AT_ONCE = 2
_TURN_SECS = 10.0

_R = TypeVar('_R')


class OffLoop:
  """Threads for slow calls; calls with another key are not delayed."""

  def __init__(self) -> None:
    self._threads = futures.ThreadPoolExecutor(_MOST_THREADS, 'request')
    self._turns: dict[Hashable, asyncio.Semaphore] = {}

  async def run(self, key: Hashable, call: Callable[..., _R], *args: Any) -> _R:
    """Returns the result of a call, which runs in a thread.

    Args:
      key: The group of the call, for example its chat template. The number of
        groups must be bounded. None for a fast call, which runs at once.
      call: The function.
      *args: Its arguments.

    Raises:
      problems.Problem: The group has too many calls.
    """
    if key is None:
      return call(*args)
    turn = self._turns.setdefault(key, asyncio.Semaphore(_AT_ONCE))
    try:
      async with asyncio.timeout(_TURN_SECS):
        await turn.acquire()
    except TimeoutError as e:
      raise problems.unavailable(
        'the gateway is busy with large requests. Try again soon', 1.0
      ) from e
    loop = asyncio.get_running_loop()
    work = self._threads.submit(call, *args)
    # A thread goes on if the client disconnects, so it keeps its turn.
    work.add_done_callback(lambda _: loop.call_soon_threadsafe(turn.release))
    return await asyncio.shield(asyncio.wrap_future(work))
