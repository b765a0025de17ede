"""The errors that every reader and writer of checkpoints here raises."""

from collections.abc import Iterator
import contextlib

from saxml_ext.common import errors
from saxml_ext.common import kvstore


class CheckpointError(ValueError):
  """A checkpoint cannot be read or written.

  The message names the file or tensor, what was expected, what was found and
  what the user can do about it.
  """


class UnwritableError(CheckpointError):
  """A checkpoint cannot be written where it should be: a full disk, ..."""


@contextlib.contextmanager
def reading(what: str, remedy: str = '', verb: str = 'read') -> Iterator[None]:
  """Turns what files, buckets and parsers raise into CheckpointErrors.

  Args:
    what: The path or the variable that is read.
    remedy: What the user can do about an error; '' for nothing.
    verb: The participle that messages use.

  Raises:
    CheckpointError: The block failed to read.
  """
  try:
    yield
  except CheckpointError:
    raise
  except _FAILURES as e:
    advice = f'; {remedy}' if remedy else ''
    raise CheckpointError(
      f'{what} cannot be {verb}: {_reason(what, e)}{advice}'
    ) from e


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
  """Turns what a disk or a bucket raises into UnwritableErrors.

  Args:
    what: The path or the variable that is written.

  Raises:
    UnwritableError: The block failed to write.
  """
  try:
    yield
  except CheckpointError:
    raise
  except _FAILURES as e:
    raise UnwritableError(
      f'{what} cannot be written: {_reason(what, e)}; free space or choose another'
      ' directory'
    ) from e


# tensorstore raises a ValueError where the system would raise an OSError.
_FAILURES = (OSError, ValueError, RecursionError, errors.SaxError)


def _reason(what: str, error: Exception) -> str:
  if isinstance(error, errors.NotFound):
    return 'No such file or directory'
  reason = getattr(error, 'strerror', None) or kvstore.error_text(error)
  return reason.removeprefix(f'{what}: ')
