"""Lets a load that nobody wants any more end early.

The life cycle says how to find out, for the thread that loads; what takes long
asks between two of its steps.
"""

from collections.abc import Callable, Iterator
import contextlib
import contextvars

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
