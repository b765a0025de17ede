"""Small files beside a checkpoint: where they are, and how to write them."""

import os

from saxml_ext.common import errors as common_errors
from saxml_ext.common import storage
from saxml_ext.pax import errors

REPORT_TEXT = 'quantization_report.txt'
REPORT_HTML = 'quantization_report.html'
REPORT_JSON = 'quantization_report.json'


def directory_of(step_dir: str) -> str:
  """The directory that holds a step's directory."""
  return os.path.dirname(step_dir.rstrip('/'))


def write(path: str, data: bytes) -> None:
  """Writes a file, whole or not at all.

  A run that is killed in between leaves `<path>.partial` at most, which the next
  one takes over: what was resumed has the same files as what was not.

  Raises:
    errors.UnwritableError: the file system or the bucket refuses.
  """
  try:
    storage.write_bytes(path, data, sole_writer=True)
  except (OSError, common_errors.SaxError) as e:
    raise errors.UnwritableError(f'{path} cannot be written: {e}') from e


def remove_reports(directory: str) -> None:
  """Removes the reports of a checkpoint that is about to be replaced.

  Raises:
    errors.UnwritableError: the file system or the bucket refuses.
  """
  try:
    for name in (REPORT_TEXT, REPORT_HTML, REPORT_JSON):
      storage.delete(os.path.join(directory, name))
  except (OSError, common_errors.SaxError) as e:
    raise errors.UnwritableError(
      f'old reports in {directory} cannot be removed: {e}'
    ) from e
