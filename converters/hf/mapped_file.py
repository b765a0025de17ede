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


def advise(mapped: mmap.mmap, begin: int, length: int, advice: int) -> None:
  """Tells the system what becomes of a range of a mapped file.

  Args:
    mapped: the file.
    begin: first byte.
    length: number of bytes.
    advice: mmap.MADV_WILLNEED to have it read ahead, mmap.MADV_DONTNEED to have
      its pages counted as memory of this process no longer. It stays readable.
  """
  skipped = begin % mmap.PAGESIZE
  if length:
    mapped.madvise(advice, begin - skipped, length + skipped)
