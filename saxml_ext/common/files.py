"""Writes local files and directories atomically, and reads untrusted files.

A writer fills a file beside the old one and renames it when it is complete.
Readers see either the old bytes or the new ones, even after a power failure.

`read_file` reads what another program or user may have written. It never waits
for a FIFO, and reads no more bytes than a limit. `check_owner` refuses files
that an unknown user owns, and `check_private` also those that others may write.
"""

from collections.abc import Callable, Iterator
import contextlib
import errno
import functools
import grp
import json
import os
import pwd
import re
import shutil
import stat
from typing import Any, IO, overload, TypeVar

_T = TypeVar('_T')
_Path = str | os.PathLike[str]

# msgspec adds the position of a syntax error to its message.
_OFFSET = re.compile(r' \(byte (\d+)\)$')
# In a cache of huggingface_hub, the files of a snapshot are links to such paths.
_HUB_BLOB = re.compile(r'.*/models--[^/]+/blobs/[^/]+', re.DOTALL)


class UnusableFileError(OSError):
  """Raised for a file that is not regular, too large, or in the wrong hands."""

  def __init__(self, path: _Path, reason: str):
    super().__init__(errno.EINVAL, reason, os.fspath(path))

  def __str__(self) -> str:
    return f'{self.filename} cannot be used: {self.strerror}'


def open_regular(path: _Path, flags: int = os.O_RDONLY) -> int:
  """Opens a regular file, without waiting, and returns its descriptor.

  Raises:
    UnusableFileError: The path is a FIFO, a device, a socket or a directory.
    OSError: The file cannot be opened.
  """
  try:
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
  except OSError as e:
    if e.errno in (errno.ENXIO, errno.EISDIR, errno.ENODEV):
      raise UnusableFileError(path, 'it is not a regular file') from e
    raise
  if not stat.S_ISREG(os.fstat(fd).st_mode):
    os.close(fd)
    raise UnusableFileError(path, 'it is not a regular file')
  return fd


def read_file(
  path: _Path,
  max_bytes: int,
  *,
  links_within: _Path | None = None,
  check: Callable[[_Path, os.stat_result], None] | None = None,
) -> bytes:
  """Reads a file that another program or user may have written.

  Args:
    path: The file.
    max_bytes: The largest size of the file.
    links_within: The directory that links may not leave, except into the blobs
      of a cache of huggingface_hub, or to a file of the same name in another
      directory of the same name. None allows all links.
    check: A function that checks the path and status of the open file, such as
      `check_owner`.

  Raises:
    UnusableFileError: The file is not regular, is too large, is a link that
      leads elsewhere, or does not pass the check.
    OSError: The file cannot be read.
  """
  target = os.fspath(path)
  if links_within is not None:
    target = os.path.realpath(path)
    inside = os.path.join(os.path.realpath(links_within), '')
    # Bazel makes trees of links to files of the same directory and name.
    name = os.path.basename(os.path.abspath(links_within))
    copied = f'/{name}/{os.path.basename(path)}'
    if not (
      target.startswith(inside)
      or target.endswith(copied)
      or _HUB_BLOB.fullmatch(target)
    ):
      raise UnusableFileError(
        path,
        f'it is a link to {target}, outside of its directory. Replace the link'
        ' with a copy of the file',
      )
  with open(open_regular(target), 'rb') as f:
    status = os.fstat(f.fileno())
    if check:
      check(path, status)
    # A file may grow while it is read, and those of /proc have no size.
    if status.st_size <= max_bytes:
      data = f.read(max_bytes + 1)
      if len(data) <= max_bytes:
        return data
  raise UnusableFileError(
    path,
    f'it has {max(status.st_size, max_bytes + 1)} bytes, above the limit of'
    f' {max_bytes}',
  )


@functools.cache
def _trusted_users() -> frozenset[int]:
  """Returns root, this process's user, and the owner of this program."""
  return frozenset((0, os.geteuid(), os.stat(__file__).st_uid))


def check_owner(path: _Path, status: os.stat_result) -> None:
  """Checks that a user who decides on a directory owns a file in it.

  These are root, this process's user, the directory's owner, and everybody if
  others may replace files of the directory.

  Raises:
    UnusableFileError: Another user owns the file.
  """
  parent = os.stat(os.path.dirname(os.path.realpath(path)))
  is_shared = parent.st_mode & 0o022 and not parent.st_mode & stat.S_ISVTX
  if not is_shared and status.st_uid not in _trusted_users() | {parent.st_uid}:
    raise UnusableFileError(
      path,
      f'user {status.st_uid} owns it. Its owner must be root, user'
      f' {os.geteuid()} or the owner of its directory, user {parent.st_uid}',
    )


def check_private(path: _Path, status: os.stat_result | None = None) -> None:
  """Checks that no other user can write a directory, or a file and its directory.

  A directory's parent is not checked, because a user who replaces the directory
  owns the new one. Other users are all but root, this process's user and the
  owner of this program. A group may write if it is the private group of the
  user.

  Args:
    path: The file or directory.
    status: The status of the open file; None reads it.

  Raises:
    UnusableFileError: Another user owns a file or directory, or may write it.
    OSError: The path does not exist.
  """
  status = status or os.stat(path)
  paths = {os.fspath(path): status}
  if not stat.S_ISDIR(status.st_mode):
    parent = os.path.dirname(os.path.realpath(path))
    paths[parent] = os.stat(parent)
  for checked, info in paths.items():
    if info.st_uid not in _trusted_users():
      raise UnusableFileError(
        checked,
        f'user {info.st_uid} owns it, and could change it. Its owner must be'
        f' root or user {os.geteuid()}, who runs this program',
      )
    # In a directory with the sticky bit, others can replace no files.
    if stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX:
      continue
    shared = info.st_mode & (0o002 if _is_own(info.st_gid) else 0o022)
    if shared:
      raise UnusableFileError(
        checked, f'other users may write it. Run: chmod go-w {checked}'
      )


def _is_own(group: int) -> bool:
  """Returns True if a group is the private group of this process's user."""
  try:
    user = pwd.getpwuid(os.geteuid())
    return (user.pw_gid, user.pw_name) == (group, grp.getgrgid(group).gr_name)
  except KeyError:
    return False


@contextlib.contextmanager
def replacing(
  path: _Path,
  mode: str = 'w',
  *,
  permissions: int | None = None,
  sole_writer: bool = False,
) -> Iterator[IO[Any]]:
  """Opens a file that replaces `path` when the block ends.

  If the block or the disk fails, the old file stays intact and nothing of the
  new one is left. Several programs may write the same path at once. The last
  one to finish wins.

  Args:
    path: The file to write. Its directory must exist.
    mode: The mode: 'w' for text in UTF-8, 'wb' for bytes.
    permissions: The file's mode bits, regardless of the umask. By default, the
      mode bits that `open` gives to a new file.
    sole_writer: True if no other program writes the file at the same time. The
      unfinished file then has the fixed name `path` + ".partial", so the next
      writer replaces the unfinished file of a killed one.

  Yields:
    The open file. Its name is the path of the unfinished file.

  Raises:
    OSError: The file cannot be written.
  """
  path = os.path.abspath(path)
  unfinished = path if sole_writer else f'{path}.{os.urandom(8).hex()}'
  unfinished += '.partial'
  bits = 0o666 if permissions is None else permissions
  file = open(
    unfinished,
    mode if sole_writer else mode.replace('w', 'x'),
    encoding=None if 'b' in mode else 'utf-8',
    opener=lambda name, flags: os.open(name, flags, bits),
  )
  try:
    with file:
      if permissions is not None:
        os.fchmod(file.fileno(), permissions)
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(unfinished, path)
  except BaseException:
    with contextlib.suppress(FileNotFoundError):
      os.unlink(unfinished)
    raise
  sync_directory(os.path.dirname(path))


@contextlib.contextmanager
def new_directory(path: _Path, replace: bool = False) -> Iterator[str]:
  """Creates a directory that becomes `path` when the block ends.

  If the block fails, nothing of the new directory is left.

  Args:
    path: The directory to write. Its parent must exist.
    replace: True to replace an existing directory. Otherwise, an existing
      directory must be empty.

  Yields:
    The path of the unfinished directory.

  Raises:
    OSError: The directory cannot be written, or is not empty.
  """
  path = os.path.abspath(path)
  unfinished = f'{path}.{os.urandom(8).hex()}.partial'
  replaced = f'{unfinished}.old'
  os.mkdir(unfinished)
  try:
    yield unfinished
    if replace and os.path.exists(path):
      os.rename(path, replaced)
    os.rename(unfinished, path)
  except BaseException:
    shutil.rmtree(unfinished, ignore_errors=True)
    if os.path.exists(replaced):
      os.rename(replaced, path)
    raise
  shutil.rmtree(replaced, ignore_errors=True)
  sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
  """Makes the names in a directory durable, which a rename alone does not."""
  fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(fd)
  finally:
    os.close(fd)


@overload
def read_json(path: _Path, kind: type[_T]) -> _T: ...


@overload
def read_json(path: _Path, kind: Any = ...) -> Any: ...


def read_json(path: _Path, kind: Any = Any) -> Any:
  """Reads a JSON file as a value of a type.

  Args:
    path: The file to read.
    kind: The type of the value, such as a dataclass or `list[str]`. Fields that
      a dataclass lacks are ignored. A msgspec.Struct may refuse them.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not JSON, or not of that type.
  """
  with open(path, 'rb') as f:
    return decode_json(f.read(), kind, os.fspath(path))


@overload
def decode_json(data: bytes | str, kind: type[_T], name: str) -> _T: ...


@overload
def decode_json(data: bytes | str, kind: Any, name: str) -> Any: ...


def decode_json(data: bytes | str, kind: Any, name: str) -> Any:
  """Parses JSON as a value of a type; see `read_json`.

  Args:
    data: The text.
    kind: The type of the value.
    name: The name of the file in error messages.

  Raises:
    ValueError: The text is not JSON, or not of that type.
  """
  # msgspec is imported late so that clients that only write files start faster.
  import msgspec

  try:
    return msgspec.json.decode(data, type=kind)
  except msgspec.ValidationError as e:
    raise ValueError(f'{name}: {e}. Correct the file or write it again') from e
  except (msgspec.DecodeError, UnicodeDecodeError) as e:
    text = data.encode() if isinstance(data, str) else data
    problem, position = str(e), ''
    if match := _OFFSET.search(problem):
      before = text[: int(match[1])].split(b'\n')
      problem = problem[: match.start()]
      position = f' at line {len(before)}, column {len(before[-1]) + 1}'
    raise ValueError(
      f'{name} is not JSON{position}: {problem}. Correct the file or write it'
      ' again'
    ) from e


def encode_json(value: Any, *, indent: int = 2, sort_keys: bool = False) -> str:
  """Formats a value as lines of JSON.

  Args:
    value: A dataclass, a msgspec.Struct or a value that the json module
      accepts.
    indent: The number of columns per level.
    sort_keys: True to sort the keys of every object.

  Raises:
    TypeError: JSON cannot represent the value.
    ValueError: A number is infinite or not a number.
  """
  import msgspec

  plain = msgspec.to_builtins(value, str_keys=True)
  return (
    json.dumps(plain, indent=indent, sort_keys=sort_keys, allow_nan=False)
    + '\n'
  )


def write_json(
  path: _Path, value: Any, *, indent: int = 2, sort_keys: bool = False
) -> None:
  """Writes a value as a JSON file, atomically.

  `encode_json` describes the arguments and its errors.

  Raises:
    OSError: The file cannot be written.
  """
  text = encode_json(value, indent=indent, sort_keys=sort_keys)
  with replacing(path) as f:
    f.write(text)
