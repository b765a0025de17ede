"""Files of a cell and of checkpoints: on local paths, in gs:// and s3://.

A write is whole or not at all: readers of the old name see the old bytes or
the new ones, also after a power cut. A bucket has no directories: there, a
directory is what the names of its objects begin with, and making one does
nothing.

Buckets and conditional writes go through tensorstore's key-value stores.
fsspec would have done for plain files, but needs a package for each kind of
bucket (s3fs, gcsfs), has no conditional write and cannot hold tensorstore's
arrays; obstore has conditional writes but would be a second client, with
credentials and retries of its own, beside the one that arrays need anyway.
What tensorstore lacks: it lists whole subtrees (fine for the thousand objects
of a checkpoint, poor for millions) and tells causes of errors only as text.

`kvstore` says where buckets are, and whose credentials count.
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

# Version of what is not there: a write conditional on it only creates.
ABSENT = b'\x02'
# The limit of `Reread`, far more than any list of names needs.
_MAX_BYTES = 16 * 2**20

_T = TypeVar('_T')
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Versioned:
  """Contents of a file and what a conditional write needs to know of them.

  Attributes:
    data: the bytes; None if there is no such file.
    version: opaque; `ABSENT` if there is no such file.
  """

  data: bytes | None
  version: bytes


def read_bytes(path: str) -> bytes:
  """Reads a file.

  Raises:
    NotFound: there is no such file.
    OSError: the file cannot be read.
    InvalidArgument, PermissionDenied, Unavailable: see `kvstore`.
  """
  if is_url(path):
    data = read_versioned(path).data
    if data is None:
      raise errors.NotFound(f'{path}: no such object')
    return data
  kvstore.spec(path)
  try:
    with open(path, 'rb') as f:
      return f.read()
  except FileNotFoundError as e:
    raise errors.NotFound(f'{path}: no such file or directory') from e


def read_versioned(path: str) -> Versioned:
  """Reads a file for a conditional write; one that is not there is no error."""
  store, name = kvstore.locate_file(path)
  found = kvstore.call(path, lambda: store.read(name).result())
  data = found.value if found.state == 'value' else None
  return Versioned(data, found.stamp.generation)


def write_if(path: str, data: bytes, version: bytes) -> bytes:
  """Writes a file if nobody has written it since it was of `version`.

  Of writers that start from the same version one wins. Local files are written
  under a lock beside them, so local writers must all use this function.

  Args:
    path: of the file.
    data: contents.
    version: of `read_versioned` or of the last `write_if`; `ABSENT` to create.

  Returns:
    The new version.

  Raises:
    Aborted: it is of another version by now, or was deleted.
    InvalidArgument, PermissionDenied, Unavailable: see `kvstore`.
  """
  store, name = kvstore.locate_file(path)
  stamp = kvstore.call(
    path, lambda: store.write(name, data, if_equal=version).result()
  )
  if not stamp.generation:
    raise errors.Aborted(
      f'{path} was changed by somebody else: read it again, then write'
    )
  return stamp.generation


def write_bytes(path: str, data: bytes, sole_writer: bool = False) -> None:
  """Writes a file so that it is durable and never seen half written.

  Args:
    path: of the file.
    data: contents.
    sole_writer: nobody else writes this file at the same time. What a killed
      writer leaves on a disk is then replaced when the file is written again;
      see `files.replacing`.

  Raises:
    NotFound: the directory does not exist.
    OSError: the disk is full or the directory not writable; the old file, if
      any, is then unharmed.
    InvalidArgument, PermissionDenied, Unavailable: see `kvstore`.
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
  """Deletes a file, or a directory and all below it; absent is fine.

  Raises:
    OSError: the file system refuses.
    InvalidArgument, PermissionDenied, Unavailable: see `kvstore`.
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
    pass  # As wanted.


def exists(path: str) -> bool:
  """Whether there is a file or directory."""
  if is_url(path):
    return is_file(path) or is_dir(path)
  kvstore.spec(path)
  return os.path.exists(path)


def is_file(path: str) -> bool:
  """Whether there is a file."""
  if is_url(path):
    is_bucket = not kvstore.spec(path)['path']
    return not is_bucket and read_versioned(path).data is not None
  kvstore.spec(path)
  return os.path.isfile(path)


def is_dir(path: str) -> bool:
  """Whether there is a directory: in a bucket, any object below the name."""
  if is_url(path):
    return bool(list_tree(path))
  kvstore.spec(path)
  return os.path.isdir(path)


def list_dir(path: str) -> list[str]:
  """Names in a directory, sorted.

  Raises:
    NotFound: there is no such directory.
    InvalidArgument, PermissionDenied, Unavailable: see `kvstore`.
  """
  if is_url(path):
    names = sorted({key.split('/')[0] for key in list_tree(path)})
    if not names:
      raise errors.NotFound(f'{path}: no object has a name below it')
    return names
  kvstore.spec(path)
  try:
    return sorted(os.listdir(path))
  except (FileNotFoundError, NotADirectoryError) as e:
    raise errors.NotFound(f'{path}: no such directory') from e


def list_tree(path: str) -> list[str]:
  """Paths of all files below a directory, relative to it, sorted."""
  if not is_url(path):
    return sorted(
      os.path.relpath(os.path.join(parent, name), path)
      for parent, _, names in os.walk(path)
      for name in names
    )
  import tensorstore as ts

  store, key = kvstore.locate(path.rstrip('/'))
  prefix = f'{key}/' if key else ''
  # All that begins with "a/" comes before "a0", as 0 follows /.
  below = ts.KvStore.KeyRange(prefix, f'{key}0' if key else '')
  keys = kvstore.call(path, lambda: store.list(below).result())
  names = [key.decode('utf-8', 'replace') for key in keys]
  return sorted(n.removeprefix(prefix) for n in names if n.startswith(prefix))


def make_dirs(path: str) -> None:
  """Creates a directory and its parents; one that exists is fine.

  Raises:
    OSError: it cannot be created.
    InvalidArgument: see `kvstore`.
  """
  kvstore.spec(path)
  if not is_url(path):
    os.makedirs(path, mode=_DIR_MODE, exist_ok=True)


class Reread(Generic[_T]):
  """What a file says; the last good content while it is broken. Thread-safe.

  Attributes:
    path: The path of the file.
    value: What the file says.
    trouble: Why it could not be read or used the last time; '' if it could.
    good: True if any of its contents could be used so far.
  """

  def __init__(
    self, path: str, parse: Callable[[bytes], _T], absent: _T, broken: _T
  ):
    """Reads nothing yet.

    Args:
      path: of a local file, or a URL.
      parse: makes the value of the file's bytes; raises InvalidArgument.
      absent: the value while there never was a file.
      broken: the value while none of its contents could be used.
    """
    self.path = path
    self._parse = parse
    self._broken = broken
    self._lock = threading.Lock()
    self._data: bytes | None = None
    self.value = absent
    self.good = False
    self.trouble = ''
    self._closed = threading.Event()

  def refresh(self) -> None:
    """Reads it now."""
    with self._lock:
      try:
        data = read_bytes(self.path)
        if self.good and not self.trouble and data == self._data:
          return
        if len(data) > _MAX_BYTES:
          raise errors.InvalidArgument(
            f'{len(data)} bytes are above the limit of {_MAX_BYTES}'
          )
        value = self._parse(data)
      except errors.NotFound:
        if self.good:
          self._fail('it is gone')
      except (errors.SaxError, OSError) as e:
        self._fail(str(e))
      else:
        if self.trouble:
          _logger.warning('%s is in order again', self.path)
        elif self.good:
          _logger.info('read %s again', self.path)
        self._data, self.value = data, value
        self.good, self.trouble = True, ''

  def follow(self, interval: float) -> None:
    """Refreshes it every so many seconds until `close`."""
    threading.Thread(
      target=self._follow, args=(interval,), name='reread', daemon=True
    ).start()

  def close(self) -> None:
    """Ends `follow`."""
    self._closed.set()

  def _follow(self, interval: float) -> None:
    while not self._closed.wait(interval):
      try:
        self.refresh()
      except Exception:  # pylint: disable=broad-exception-caught
        # This thread is all that ever notices that the file is good again.
        _logger.exception('%s cannot be read', self.path)

  def _fail(self, why: str) -> None:
    if not self.good:
      self.value = self._broken
    if why != self.trouble:
      kept = 'its last good content stays' if self.good else 'nobody is let in'
      _logger.error('%s cannot be used, %s: %s', self.path, kept, why)
    self.trouble = why
