"""Prepares items in advance, and displays the progress of work."""

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import contextlib
import itertools
import sys
import time
from typing import TypeVar

import numpy as np
from rich import console as rich_console
from rich import progress as rich_progress

_T = TypeVar('_T')
_S = TypeVar('_S')

_SECONDS_BETWEEN_LINES = 5.0


def in_order(
  function: Callable[[_S], _T],
  arguments: Iterable[_S],
  threads: int,
  depth: int = 0,
) -> Iterator[_T]:
  """Yields the results of a function for all arguments, in order.

  An exception of the function is raised when its result is due.

  Args:
    function: The function that the threads call.
    arguments: The arguments of the calls, one for each call.
    threads: The number of threads.
    depth: The number of results that are made in advance; 0 means `threads`.
  """
  arguments = iter(arguments)
  pool = futures.ThreadPoolExecutor(threads)
  pending: collections.deque[futures.Future[_T]] = collections.deque()

  def submit(count: int) -> None:
    for argument in itertools.islice(arguments, count):
      pending.append(pool.submit(function, argument))

  try:
    submit(depth or threads)
    while pending:
      result = pending.popleft().result()
      submit(1)
      yield result
  finally:
    pool.shutdown(cancel_futures=True)


def prefetch(items: Iterable[_T], depth: int) -> Iterator[_T]:
  """Yields items in order, and prepares up to `depth` of them in advance.

  An exception of the iterable is raised when its item is due.

  Args:
    items: The items to prepare.
    depth: The maximum number of items that are ready in advance.
  """
  iterator = iter(items)
  # A single thread advances the iterator, so the order is kept. The thread
  # makes tuples of one item, and empty tuples after the last item.
  made = in_order(
    lambda _: tuple(itertools.islice(iterator, 1)),
    itertools.repeat(None),
    threads=1,
    depth=depth,
  )
  with contextlib.closing(made):  # type: ignore[type-var]
    for item in itertools.takewhile(len, made):
      yield from item


class Progress:
  """A context manager that counts processed bytes and displays the progress.

  It displays a bar on a terminal. Elsewhere it prints a line every few seconds,
  which suits log files and builds.
  """

  def __init__(self, verb: str, total_bytes: int, done_bytes: int = 0):
    """Starts the clock and the display.

    Args:
      verb: The verb that the display begins with, such as "Converting".
      total_bytes: The size of all the work.
      done_bytes: The size of the work that an earlier run has done. It does not
        count toward the rate.
    """
    self._verb = verb
    self._total = total_bytes
    self._done = self._before = done_bytes
    self._start = self._last_line = time.monotonic()
    self._bar = self._task = None
    if sys.stderr.isatty():
      self._bar = rich_progress.Progress(
        rich_progress.TextColumn('{task.description}'),
        rich_progress.BarColumn(),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(),
        console=rich_console.Console(stderr=True),
      )

  def __enter__(self) -> 'Progress':
    if self._bar:
      self._bar.start()
      self._task = self._bar.add_task(
        self._verb, total=self._total, completed=self._done
      )
    return self

  def __exit__(self, *exc_info) -> None:
    if self._bar:
      self._bar.stop()

  def count(
    self, parts: Iterable[tuple[int, np.ndarray]], what: str
  ) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the parts of a variable, and counts each after its use.

    Args:
      parts: The first row and the array of each part.
      what: The name of the variable.
    """
    for begin, part in parts:
      yield begin, part
      self.advance(part.nbytes, what)

  def advance(self, num_bytes: int, what: str) -> None:
    """Adds `num_bytes` of the item named `what` to the count."""
    self._done += num_bytes
    if self._bar:
      self._bar.update(self._task, completed=self._done)
      return
    now = time.monotonic()
    if now - self._last_line >= _SECONDS_BETWEEN_LINES:
      self._last_line = now
      rate = (self._done - self._before) / (now - self._start)
      left = (self._total - self._done) / rate
      print(
        f'{self._verb} {what}: {self._done / 1e9:.1f} of '
        f'{self._total / 1e9:.1f} GB, {rate / 1e6:.0f} MB/s, {left:.0f} s '
        'left',
        file=sys.stderr,
        flush=True,
      )
