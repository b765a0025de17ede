"""Ends a load early that nobody wants any more, and cleans up after a failure.

The life cycle sets the check of the thread that loads. Functions that take long
call it between two of their steps.
"""

from collections.abc import Callable, Iterator
import contextlib
import contextvars
import traceback

from absl import logging

_check: contextvars.ContextVar[Callable[[], None]] = contextvars.ContextVar(
  'check', default=lambda: None
)


@contextlib.contextmanager
def checking(check_wanted: Callable[[], None]) -> Iterator[None]:
  """Makes `check` call a function, on this thread.

  Args:
    check_wanted: Raises SaxError if the load is to end.
  """
  token = _check.set(check_wanted)
  try:
    yield
  finally:
    _check.reset(token)


def check() -> None:
  """Raises SaxError if the load of this thread is to end."""
  _check.get()()


def progress(line: str) -> None:
  """Logs the progress of a load, then checks it."""
  logging.info('%s', line)
  check()


def drop_frames(error: BaseException | None) -> None:
  """Releases what functions that failed had in their variables.

  A traceback keeps it otherwise, such as the weights that were read until
  then, as long as anybody keeps the error.
  """
  while error is not None:
    traceback.clear_frames(error.__traceback__)
    error = error.__cause__ or error.__context__
