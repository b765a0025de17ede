"""Several streams read as one, and several calls awaited together."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
import contextlib
from typing import Any, TypeVar

_T = TypeVar('_T')


async def merged(
  streams: Sequence[AsyncGenerator[_T, None]], at_once: int
) -> AsyncGenerator[tuple[int, _T], None]:
  """Items of all streams as they come, each with its stream's number.

  A reader that is slow holds the streams up. The first error of a stream, and
  closing the generator, ends all of them.

  Args:
    streams: not begun yet.
    at_once: how many of them are read at a time.
  """
  # One place, for what was read and not yet taken.
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


async def all_of(
  calls: Sequence[Coroutine[Any, Any, _T]], at_once: int
) -> list[_T]:
  """The results of coroutines; the first error ends all of them.

  Args:
    calls: not begun yet.
    at_once: how many of them run at a time.
  """
  room = asyncio.Semaphore(at_once)

  async def one(call: Coroutine[Any, Any, _T]) -> _T:
    async with room:
      return await call

  tasks = [asyncio.create_task(one(call)) for call in calls]
  try:
    return await asyncio.gather(*tasks)
  finally:
    for task in tasks:
      task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for call in calls:
      call.close()  # Those that were never begun.
