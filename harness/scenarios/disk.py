"""Tells a full disk for what it is: LoadGen writes its logs without looking."""

from collections.abc import Iterator
import contextlib
import shutil

from harness import errors

# Less than LoadGen's logs of the shortest run take.
_LEAST_BYTES = 1 << 17


class DiskError(errors.HarnessError):
  """There is no room for the results."""


@contextlib.contextmanager
def told(directory: str) -> Iterator[None]:
  """Blames the disk at the end of the `with` block, if it is full.

  Also when nothing failed: logs that are cut off at the end of a line look as
  if they were whole.

  Args:
    directory: where the block writes.

  Raises:
    DiskError: the disk is full.
  """
  try:
    yield
  except (OSError, ValueError, errors.HarnessError) as error:
    _check(directory, error)
    raise
  _check(directory, None)


def _check(directory: str, error: Exception | None) -> None:
  free = shutil.disk_usage(directory).free
  if free < _LEAST_BYTES:
    raise DiskError(
      f'the disk of {directory} is full, {free} bytes are left, so that logs'
      ' are cut off; what is written so far stays. Make room there, or give'
      ' --results_dir or --cache_dir on another disk, and run again'
    ) from error
