"""How requests end: with an answer, or with an error."""

from typing import Any

from saxml_ext.common import errors
from saxml_ext.server.scheduling import waiting


def finish(work: waiting.Work, result: Any) -> None:
  """Answers a request, unless it was cancelled."""
  # False if it was cancelled; afterwards it can no longer be.
  if work.future.set_running_or_notify_cancel():
    work.future.set_result(result)


def fail(work: waiting.Work, error: errors.SaxError) -> None:
  """Has a request fail, unless it was cancelled."""
  if work.future.set_running_or_notify_cancel():
    work.future.set_exception(copy(error))


def copy(error: errors.SaxError) -> errors.SaxError:
  """The same error once more.

  One instance raised again and again would collect tracebacks.
  """
  return errors.from_code(error.code, error.message)
