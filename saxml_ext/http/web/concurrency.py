"""Runs several calls to the cell for one request."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
import contextlib
from typing import TypeVar

# The maximum number of calls of one request that run at a time.
_AT_ONCE = 32

_A = TypeVar('_A')
_T = TypeVar('_T')


async def merge(
  streams: Sequence[AsyncGenerator[_T, None]], at_once: int = _AT_ONCE
) -> AsyncGenerator[tuple[int, _T], None]:
  """Yields (number of the stream, item) pairs as the items arrive.

  A slow reader slows down the streams. The first error of a stream ends all
  streams, and so does closing the generator.

  Args:
    streams: The streams, not started yet.
    at_once: The maximum number of streams that are read at a time.
  """
  if len(streams) == 1:
    async with contextlib.aclosing(streams[0]):
      async for item in streams[0]:
        yield 0, item
    return
  # The queue holds one item that was read and not yielded yet.
  queue: asyncio.Queue[tuple[int, _T]] = asyncio.Queue(1)
  room = asyncio.Semaphore(at_once)

  async def read(number: int, stream: AsyncGenerator[_T, None]) -> None:
    async with room, contextlib.aclosing(stream):
      async for item in stream:
        await queue.put((number, item))

  tasks = [
    asyncio.create_task(read(number, stream))
    for number, stream in enumerate(streams)
  ]
  ended = asyncio.gather(*tasks)
  try:
    while not (ended.done() and queue.empty()):
      taking = asyncio.create_task(queue.get())
      try:
        await asyncio.wait((taking, ended), return_when='FIRST_COMPLETED')
        if taking.done():
          yield taking.result()
        else:
          ended.result()
      finally:
        taking.cancel()
    ended.result()
  finally:
    for task in tasks:
      task.cancel()
    await asyncio.gather(ended, *tasks, return_exceptions=True)


async def gather(
  call: Callable[[_A], Awaitable[_T]],
  items: Sequence[_A],
  at_once: int = _AT_ONCE,
) -> list[_T]:
  """Returns the result of a call for each item; the first error ends all.

  Args:
    call: The coroutine function.
    items: The arguments.
    at_once: The maximum number of calls that run at a time.
  """

  async def stream(item: _A) -> AsyncGenerator[_T, None]:
    yield await call(item)

  streams = [stream(item) for item in items]
  results = {i: result async for i, result in merge(streams, at_once)}
  return [results[i] for i in range(len(items))]
