"""Small files beside a checkpoint."""

import os

from saxml_ext.common import errors as common_errors
from saxml_ext.common import storage
from saxml_ext.pax import errors


def write(path: str, data: bytes) -> None:
  """Writes a file, whole or not at all.

  A run that is killed in between leaves `<path>.tmp` at most, which the next
  one takes over: what was resumed has the same files as what was not.

  Raises:
    errors.UnwritableError: the file system or the bucket refuses.
  """
  try:
    if storage.is_url(path):
      storage.write_bytes(path, data)
      return
    with open(f'{path}.tmp', 'wb') as f:
      f.write(data)
    os.replace(f'{path}.tmp', path)
  except (OSError, common_errors.SaxError) as e:
    raise errors.UnwritableError(f'{path} cannot be written: {e}') from e
