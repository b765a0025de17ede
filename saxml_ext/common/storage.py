"""Files of a cell, on local paths.

A write is whole or not at all: readers of the old name see the old bytes or
the new ones, also after a power cut.
"""

import os
import re
import tempfile

from saxml_ext.common import errors

_URL = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*://')
_FILE_MODE = 0o644
_DIR_MODE = 0o777


def _local(path: str) -> str:
  if not path:
    raise errors.InvalidArgument('path "" is empty: name a file or directory')
  if _URL.match(path):
    raise errors.Unimplemented(
        f'"{path}" is a URL: only local paths can be read and written, so '
        'mount the bucket and name the mount point'
    )
  return path


def read_bytes(path: str) -> bytes:
  """Reads a file.

  Raises:
    NotFound: there is no such file.
    Unimplemented: `path` is a URL.
    OSError: the file cannot be read.
  """
  try:
    with open(_local(path), 'rb') as f:
      return f.read()
  except FileNotFoundError as e:
    raise errors.NotFound(f'{path}: no such file or directory') from e


def write_bytes(path: str, data: bytes) -> None:
  """Writes a file so that it is durable and never seen half written.

  Raises:
    NotFound: the directory does not exist.
    Unimplemented: `path` is a URL.
    OSError: the disk is full or the directory not writable; the old file, if
      any, is then unharmed.
  """
  directory, name = os.path.split(os.path.abspath(_local(path)))
  try:
    fd, temporary = tempfile.mkstemp(prefix=name + '.', dir=directory)
  except FileNotFoundError as e:
    raise errors.NotFound(f'{directory}: no such directory') from e
  try:
    with os.fdopen(fd, 'wb') as f:
      os.fchmod(f.fileno(), _FILE_MODE)
      f.write(data)
      f.flush()
      os.fsync(f.fileno())
    os.rename(temporary, os.path.join(directory, name))
  except BaseException:
    os.unlink(temporary)
    raise
  _sync_directory(directory)


def _sync_directory(directory: str) -> None:
  # A rename is durable only once its directory is.
  fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(fd)
  finally:
    os.close(fd)


def exists(path: str) -> bool:
  """Whether there is a file or directory; Unimplemented for a URL."""
  return os.path.exists(_local(path))


def is_dir(path: str) -> bool:
  """Whether there is a directory; Unimplemented for a URL."""
  return os.path.isdir(_local(path))


def list_dir(path: str) -> list[str]:
  """Names in a directory, sorted.

  Raises:
    NotFound: there is no such directory.
    Unimplemented: `path` is a URL.
  """
  try:
    return sorted(os.listdir(_local(path)))
  except (FileNotFoundError, NotADirectoryError) as e:
    raise errors.NotFound(f'{path}: no such directory') from e


def make_dirs(path: str) -> None:
  """Creates a directory and its parents; one that exists is fine.

  Raises:
    Unimplemented: `path` is a URL.
    OSError: it cannot be created.
  """
  os.makedirs(_local(path), mode=_DIR_MODE, exist_ok=True)
