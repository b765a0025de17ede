"""Ends loads that are no longer needed, and cleans up after failures.

The life cycle sets the check function of the thread that loads. Long functions
call it between two steps.
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
  """Makes `check` call a function during the context, on this thread.

  Args:
    check_wanted: A function that raises SaxError if the load must end.
  """
  token = _check.set(check_wanted)
  try:
    yield
  finally:
    _check.reset(token)


def check() -> None:
  """Raises SaxError if the load of this thread must end."""
  _check.get()()


def progress(line: str) -> None:
  """Logs the progress of a load; raises SaxError if the load must end."""
  logging.info('%s', line)
  check()


def drop_frames(error: BaseException | None) -> None:
  """Releases the local variables of the functions that failed.

  Otherwise, the traceback keeps them as long as the error exists, for example
  the weights that were already read.
  """
  while error is not None:
    traceback.clear_frames(error.__traceback__)
    error = error.__cause__ or error.__context__
