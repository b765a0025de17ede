"""Writes local files and directories atomically, and reads typed JSON files.

A writer fills a file beside the old one and renames it when it is complete.
Readers see either the old bytes or the new ones, even after a power failure.
"""

from collections.abc import Iterator
import contextlib
import json
import os
import re
import shutil
from typing import Any, IO, overload, TypeVar

_T = TypeVar('_T')
_Path = str | os.PathLike[str]

# msgspec adds the position of a syntax error to its message.
_OFFSET = re.compile(r' \(byte (\d+)\)$')


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
    problem, place = str(e), ''
    if found := _OFFSET.search(problem):
      before = text[: int(found[1])].split(b'\n')
      problem = problem[: found.start()]
      place = f' at line {len(before)}, column {len(before[-1]) + 1}'
    raise ValueError(
      f'{name} is not JSON{place}: {problem}. Correct the file or write it'
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
