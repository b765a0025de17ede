"""Reports and ends loads in progress, and cleans up after failures.

The life cycle sets the functions of the thread that loads. Long functions call
them between two steps.
"""

from collections.abc import Callable, Iterator
import contextlib
import contextvars
import traceback

from absl import logging

_report: contextvars.ContextVar[Callable[[str], None]] = contextvars.ContextVar(
  'report', default=lambda line: None
)
_check: contextvars.ContextVar[Callable[[], None]] = contextvars.ContextVar(
  'check', default=lambda: None
)


@contextlib.contextmanager
def checking(
  check_wanted: Callable[[], None],
  report: Callable[[str], None] = lambda line: None,
) -> Iterator[None]:
  """Makes `check` and `progress` call functions during the context.

  This affects the current thread only.

  Args:
    check_wanted: A function that raises SaxError if the load must end.
    report: A function that receives the lines of `progress`.
  """
  tokens = _check.set(check_wanted), _report.set(report)
  try:
    yield
  finally:
    _check.reset(tokens[0])
    _report.reset(tokens[1])


def check() -> None:
  """Raises SaxError if the load of this thread must end."""
  _check.get()()


def progress(line: str) -> None:
  """Reports the progress of a load; raises SaxError if the load must end.

  Args:
    line: The line for the log. The text before the first colon becomes the
      reason of the state LOADING.
  """
  logging.info('%s', line)
  _report.get()(line)
  check()


def drop_frames(error: BaseException | None) -> None:
  """Releases the local variables of the functions that failed.

  Otherwise, the traceback keeps them as long as the error exists, for example
  the weights that were already read.
  """
  while error is not None:
    traceback.clear_frames(error.__traceback__)
    error = error.__cause__ or error.__context__
