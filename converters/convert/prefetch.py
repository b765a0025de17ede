"""Has items made by threads while earlier ones are being used."""

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import itertools
from typing import TypeVar

_T = TypeVar('_T')
_S = TypeVar('_S')


def in_order(
  function: Callable[[_S], _T], arguments: Iterable[_S], threads: int
) -> Iterator[_T]:
  """Yields the function of each argument, in order, `threads` at a time.

  Raises:
    What the function raises, when its turn has come.
  """
  arguments = iter(arguments)
  pool = futures.ThreadPoolExecutor(threads)
  try:
    pending = collections.deque(
      pool.submit(function, a) for a in itertools.islice(arguments, threads)
    )
    while pending:
      result = pending.popleft().result()
      pending.extend(
        pool.submit(function, a) for a in itertools.islice(arguments, 1)
      )
      yield result
  finally:
    pool.shutdown(cancel_futures=True)


def prefetch(items: Iterable[_T], depth: int) -> Iterator[_T]:
  """Yields the items in their order, up to `depth` of them made in advance.

  Raises:
    What making an item raises, when its turn has come.
  """
  iterator = iter(items)

  def following() -> tuple[_T, ...]:
    """The next item alone; nothing after the last."""
    return tuple(itertools.islice(iterator, 1))

  # A single worker, so the iterator is asked by one thread and in order.
  pool = futures.ThreadPoolExecutor(1)
  try:
    pending = collections.deque(pool.submit(following) for _ in range(depth))
    while item := pending.popleft().result():
      pending.append(pool.submit(following))
      yield item[0]
  finally:
    pool.shutdown(cancel_futures=True)
