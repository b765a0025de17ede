"""Files of a cell and of checkpoints: on local paths, in gs:// and s3://.

Writes are atomic: readers of the old name see either the old bytes or the new
ones, even after a power failure. A bucket has no directories. There, a
directory is a prefix of the names of objects, and creating one does nothing.

Buckets and conditional writes use tensorstore's key-value stores. There are two
alternatives:

- fsspec supports plain files. But it needs a package for each kind of bucket
  (s3fs, gcsfs), has no conditional write and cannot hold tensorstore's arrays.
- obstore has conditional writes. But it would be a second client with its own
  credentials and retries, because arrays need tensorstore anyway.

tensorstore has two weaknesses. It lists whole subtrees, which is fast enough
for the thousand objects of a checkpoint, but not for millions. It reports the
causes of errors only as text.

`kvstore` describes the settings for the locations and credentials of buckets.
"""

from collections.abc import Callable
import dataclasses
import logging
import os
import shutil
import threading
from typing import Generic, TypeVar

from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.common import kvstore

_FILE_MODE = 0o644
_DIR_MODE = 0o777
is_url = kvstore.is_url

# This is the version of a missing file. A write conditional on it can only
# create the file.
ABSENT = b'\x02'
# This limit of `Reread` is far above the size of any list of names.
_MAX_BYTES = 16 * 2**20
# The interval between reads of a file without which nobody is admitted.
_AWAITED_SECS = 0.2
# No file that is read as a whole is larger. Compiled programs are the largest.
_MAX_FILE_BYTES = 2**31

_T = TypeVar('_T')
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Versioned:
  """The contents of a file, and its version for a conditional write.

  Attributes:
    data: The bytes; None if the file does not exist.
    version: The opaque version; `ABSENT` if the file does not exist.
  """

  data: bytes | None
  version: bytes


def read_bytes(
  path: str,
  max_bytes: int = _MAX_FILE_BYTES,
  *,
  links_within: str | None = None,
  check: Callable[..., None] | None = None,
) -> bytes:
  """Reads a file.

  Args:
    path: The path of a local file, or a URL.
    max_bytes: The largest size of the file.
    links_within: See `files.read_file`; ignored for a URL.
    check: See `files.read_file`; ignored for a URL.

  Raises:
    NotFound: The file does not exist.
    OSError: The file cannot be read, or must not be used; see
      `files.read_file`.
    InvalidArgument, PermissionDenied, Unavailable: `kvstore` failed.
  """
  if is_url(path):
    data = read_versioned(path).data
    if data is None:
      raise errors.NotFound(f'{path}: no such object')
    if len(data) > max_bytes:
      raise files.UnusableFileError(
        path, f'it has {len(data)} bytes, above the limit of {max_bytes}'
      )
    return data
  kvstore.spec(path)
  try:
    return files.read_file(
      path, max_bytes, links_within=links_within, check=check
    )
  except FileNotFoundError as e:
    raise errors.NotFound(f'{path}: no such file or directory') from e


def read_versioned(path: str) -> Versioned:
  """Reads a file for a conditional write. A missing file is not an error."""
  store, name = kvstore.locate_file(path)
  result = kvstore.call(path, lambda: store.read(name).result())
  data = result.value if result.state == 'value' else None
  return Versioned(data, result.stamp.generation)


def write_if(path: str, data: bytes, version: bytes) -> bytes:
  """Writes a file if it still has the given version.

  If several writers start from the same version, one of them succeeds. Local
  files are written under a lock beside them, so all local writers must use this
  function.

  Args:
    path: The path of the file.
    data: The new contents.
    version: The version from `read_versioned` or from the last `write_if`;
      `ABSENT` to create the file.

  Returns:
    The new version.

  Raises:
    Aborted: The file has another version now, or was deleted.
    InvalidArgument, PermissionDenied, Unavailable: `kvstore` failed.
  """
  store, name = kvstore.locate_file(path)
  stamp = kvstore.call(
    path, lambda: store.write(name, data, if_equal=version).result()
  )
  if not stamp.generation:
    raise errors.Aborted(
      f'{path} was changed by another program. Read it again, then write it'
    )
  return stamp.generation


def write_bytes(path: str, data: bytes, sole_writer: bool = False) -> None:
  """Writes a file durably and atomically.

  Args:
    path: The path of the file.
    data: The new contents.
    sole_writer: True if no other program writes this file at the same time. The
      next write then replaces the unfinished local file of a killed writer; see
      `files.replacing`.

  Raises:
    NotFound: The directory does not exist.
    OSError: The disk is full or the directory is not writable. An old file
      stays intact.
    InvalidArgument, PermissionDenied, Unavailable: `kvstore` failed.
  """
  if is_url(path):
    store, name = kvstore.locate_file(path)
    kvstore.call(path, lambda: store.write(name, data).result())
    return
  kvstore.spec(path)
  try:
    with files.replacing(
      path, 'wb', permissions=_FILE_MODE, sole_writer=sole_writer
    ) as f:
      f.write(data)
  except FileNotFoundError as e:
    directory = os.path.dirname(os.path.abspath(path))
    raise errors.NotFound(f'{directory}: no such directory') from e


def delete(path: str) -> None:
  """Deletes a file, or a directory with its contents, if it exists.

  Raises:
    OSError: The file system refuses.
    InvalidArgument, PermissionDenied, Unavailable: `kvstore` failed.
  """
  if is_url(path):
    store, name = kvstore.locate_file(path.rstrip('/'))
    kvstore.call(path, lambda: store.write(name, None).result())
    pending = [store.write(f'{name}/{k}', None) for k in list_tree(path)]
    for write in pending:
      kvstore.call(path, write.result)
    return
  kvstore.spec(path)
  try:
    if os.path.isdir(path) and not os.path.islink(path):
      shutil.rmtree(path)
    else:
      os.unlink(path)
  except FileNotFoundError:
    pass  # The file is already gone.


def exists(path: str) -> bool:
  """Returns True if a file or directory exists."""
  if is_url(path):
    return is_file(path) or is_dir(path)
  kvstore.spec(path)
  return os.path.exists(path)


def is_file(path: str) -> bool:
  """Returns True if a file exists, even one that is not regular."""
  if is_url(path):
    is_bucket = not kvstore.spec(path)['path']
    return not is_bucket and read_versioned(path).data is not None
  kvstore.spec(path)
  return os.path.exists(path) and not os.path.isdir(path)


def is_dir(path: str) -> bool:
  """Returns True if a directory, or an object below its name, exists."""
  if is_url(path):
    return bool(list_tree(path))
  kvstore.spec(path)
  return os.path.isdir(path)


def list_dir(path: str) -> list[str]:
  """Returns the names in a directory, sorted.

  Raises:
    NotFound: The directory does not exist.
    InvalidArgument, PermissionDenied, Unavailable: `kvstore` failed.
  """
  if is_url(path):
    names = sorted({key.split('/')[0] for key in list_tree(path)})
    if not names:
      raise errors.NotFound(f'{path}: no object exists below it')
    return names
  kvstore.spec(path)
  try:
    return sorted(os.listdir(path))
  except (FileNotFoundError, NotADirectoryError) as e:
    raise errors.NotFound(f'{path}: no such directory') from e


def list_tree(path: str) -> list[str]:
  """Returns the relative paths of all files below a directory, sorted."""
  if not is_url(path):
    return sorted(
      os.path.relpath(os.path.join(parent, name), path)
      for parent, _, names in os.walk(path)
      for name in names
    )
  import tensorstore as ts

  store, key = kvstore.locate(path.rstrip('/'))
  prefix = f'{key}/' if key else ''
  # All names that begin with "a/" sort before "a0", because 0 follows / in
  # ASCII.
  below = ts.KvStore.KeyRange(prefix, f'{key}0' if key else '')
  keys = kvstore.call(path, lambda: store.list(below).result())
  names = [key.decode('utf-8', 'replace') for key in keys]
  return sorted(n.removeprefix(prefix) for n in names if n.startswith(prefix))


def make_dirs(path: str) -> None:
  """Creates a directory and its parents if they do not exist.

  Raises:
    OSError: The directory cannot be created.
    InvalidArgument: `kvstore` does not accept the path.
  """
  kvstore.spec(path)
  if not is_url(path):
    os.makedirs(path, mode=_DIR_MODE, exist_ok=True)


class Reread(Generic[_T]):
  """The parsed contents of a file, read again and again. Thread-safe.

  While the file is broken, the last good contents stay in use.

  Attributes:
    path: The path of the file.
    value: The parsed contents.
    trouble: The reason why the last read failed; '' if it succeeded.
    good: True if any read has succeeded so far.
    missing: True if the last read found no file.
  """

  def __init__(
    self,
    path: str,
    parse: Callable[[bytes], _T],
    absent: _T,
    broken: _T,
    check: Callable[..., None] = files.check_owner,
  ):
    """Reads nothing yet.

    Args:
      path: The path of a local file, or a URL.
      parse: The function that parses the bytes. It raises InvalidArgument.
      absent: The value until a file exists for the first time.
      broken: The value until a read of an existing file succeeds.
      check: The check of a local file's owner; see `files.read_file`.
    """
    self.path = path
    self._check = check
    self._parse = parse
    self._broken = broken
    self._lock = threading.Lock()
    self._data: bytes | None = None
    self.value = absent
    self.good = False
    self.trouble = ''
    self.missing = False
    self._closed = threading.Event()

  def refresh(self) -> None:
    """Reads the file now."""
    with self._lock:
      was_missing, self.missing = self.missing, False
      try:
        data = read_bytes(self.path, _MAX_BYTES, check=self._check)
        if self.good and not self.trouble and data == self._data:
          return
        value = self._parse(data)
      except errors.NotFound:
        self.missing = True
        if self.good:
          self._fail('the file does not exist any more')
        elif self._is_awaited() and not was_missing:
          _logger.warning('%s does not exist, so nobody is admitted', self.path)
      except files.UnusableFileError as e:
        self._fail(e.strerror or str(e))
      except (errors.SaxError, OSError) as e:
        self._fail(str(e))
      else:
        if self.trouble:
          _logger.warning('%s can be used again', self.path)
        elif self.good:
          _logger.info('read %s again', self.path)
        self._data, self.value = data, value
        self.good, self.trouble = True, ''

  def follow(self, interval: float) -> None:
    """Reads the file every `interval` seconds until `close`."""
    threading.Thread(
      target=self._follow, args=(interval,), name='reread', daemon=True
    ).start()

  def close(self) -> None:
    """Stops reading the file."""
    self._closed.set()

  def _is_awaited(self) -> bool:
    """Returns True if nobody is admitted until the missing file exists."""
    return self.missing and self.value is self._broken

  def _follow(self, interval: float) -> None:
    while not self._closed.wait(
      min(interval, _AWAITED_SECS) if self._is_awaited() else interval
    ):
      try:
        self.refresh()
      except Exception:  # pylint: disable=broad-exception-caught
        # The thread must survive, because nothing else notices that the file is
        # good again.
        _logger.exception('%s cannot be read', self.path)

  def _fail(self, why: str) -> None:
    if not self.good:
      self.value = self._broken
    if why != self.trouble:
      kept = 'the old contents stay' if self.good else 'nobody is admitted'
      _logger.error('%s cannot be used, so %s: %s', self.path, kept, why)
    self.trouble = why
