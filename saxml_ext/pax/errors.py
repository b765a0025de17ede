"""Defines the errors that all readers and writers of checkpoints raise."""

from collections.abc import Iterator
import contextlib

from saxml_ext.common import errors
from saxml_ext.common import kvstore

# The remedy in messages about damaged checkpoints.
AGAIN = 'Convert or copy the checkpoint again.'


class CheckpointError(ValueError):
  """Raised if a checkpoint cannot be read or written.

  The message names the file or tensor, the expected and the actual value, and
  the remedy.
  """


class UnwritableError(CheckpointError):
  """Raised if a checkpoint cannot be written, for example on a full disk."""


@contextlib.contextmanager
def reading(what: str, remedy: str = '', verb: str = 'read') -> Iterator[None]:
  """Converts exceptions of files, buckets and parsers to CheckpointErrors.

  Args:
    what: The path or the variable to read.
    remedy: A sentence with the advice to the user; '' for none.
    verb: The participle that messages use.

  Raises:
    CheckpointError: The block failed to read.
  """
  try:
    yield
  except CheckpointError:
    raise
  except _FAILURES as e:
    text = f'{what} cannot be {verb}: {_reason(what, e)}. {remedy}'
    raise CheckpointError(text.rstrip()) from e


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
  """Converts exceptions of a disk or a bucket to UnwritableErrors.

  Args:
    what: The path or the variable to write.

  Raises:
    UnwritableError: The block failed to write.
  """
  try:
    yield
  except CheckpointError:
    raise
  except _FAILURES as e:
    raise UnwritableError(
      f'{what} cannot be written: {_reason(what, e)}. Free space or choose'
      ' another directory.'
    ) from e


# tensorstore raises a ValueError where Python would raise an OSError.
_FAILURES = (OSError, ValueError, RecursionError, errors.SaxError)


def _reason(what: str, error: Exception) -> str:
  if isinstance(error, errors.NotFound):
    return 'No such file or directory'
  reason = getattr(error, 'strerror', None) or kvstore.error_text(error)
  return reason.removeprefix(f'{what}: ').removesuffix('.')
