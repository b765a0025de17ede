"""Memory-maps a file, so that only what is used of it is read."""

import mmap
import os

from saxml_ext.pax import errors


def open_mapped(path: str) -> mmap.mmap:
  """Maps a whole regular file read-only.

  Raises:
    errors.CheckpointError: it is missing, empty, or no regular file.
  """
  if not os.path.isfile(path):
    raise errors.CheckpointError(f'{path} is missing or not a regular file')
  try:
    with open(path, 'rb') as f:
      if not os.fstat(f.fileno()).st_size:
        raise errors.CheckpointError(f'{path} is empty; download it again')
      return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
  except OSError as e:
    raise errors.CheckpointError(f'{path} cannot be read: {e.strerror}') from e
