"""Stores results on disk: one directory per result, found by its id.

    <root>/<name>_<id>/            the files that entry.py lists
    <root>/<name>_<id>.previous/   the old result, until a rerun has finished
    <root>/.locks/<id>             the lock of the running job

A directory without result.json belongs to a job that is still running or has
failed. Its files stay until the user removes them or runs the job again.

A lock file contains the process id of its holder. The kernel releases the lock
when the process ends for any reason, so a crash leaves no result locked.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import fcntl
import os
import re
import shutil
import time

from harness import errors
from harness.results import entry as entry_lib
from saxml_ext.common import user_path

_PREVIOUS = '.previous'
_DIRECTORY = re.compile(r'(?P<name>.+)_(?P<id>[0-9a-f]{12})')
_LOCKS = '.locks'
# Locking is retried because `lock_holder` takes a lock briefly to test if it is
# free.
_TRIES = 10
_PAUSE_SECS = 0.02
# A shorter prefix of an id would match too many jobs.
_FEWEST_LETTERS = 4


class Busy(errors.HarnessError):
  """Another job holds the lock of this result."""


@contextlib.contextmanager
def hold_lock(path: str, what: str) -> Iterator[None]:
  """Holds a lock during a `with` block.

  Args:
    path: The path of the lock file. The file exists only while the lock is
      held.
    what: The locked object, for the error message.

  Raises:
    Busy: Another process, or another thread of this process, holds the lock.
    OSError: The file cannot be created.
  """
  os.makedirs(os.path.dirname(path), exist_ok=True)
  descriptor = _try_lock(path)
  if descriptor is None:
    pid = lock_holder(path)
    raise Busy(
      f'{what} belongs to another job that is'
      f' running{f" (process {pid})" if pid else ""}. Wait for it, or stop it'
    )
  try:
    os.truncate(descriptor, 0)
    os.write(descriptor, f'{os.getpid()}\n'.encode())
    yield
  finally:
    os.unlink(path)
    os.close(descriptor)


def lock_holder(path: str) -> int | None:
  """Returns the id of the process that holds a lock.

  Returns None if the lock is free or its holder is unknown.
  """
  try:
    with open(path, encoding='utf-8') as file:
      try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
      except BlockingIOError:
        text = file.read().strip()
        return int(text) if text.isdigit() else None
  except FileNotFoundError:
    pass
  return None


def _try_lock(path: str) -> int | None:
  """Returns the descriptor of the locked file, or None if it is locked."""
  for _ in range(_TRIES):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
      # The previous holder may have removed the file between the two calls.
      if os.path.samestat(os.fstat(descriptor), os.stat(path)):
        return descriptor
    except (BlockingIOError, FileNotFoundError):
      time.sleep(_PAUSE_SECS)
    os.close(descriptor)
  return None


@dataclasses.dataclass(frozen=True)
class Stored:
  """A result and its directory."""

  entry: entry_lib.Entry
  directory: str

  @property
  def id(self) -> str:
    return self.entry.id


@dataclasses.dataclass(frozen=True)
class Unfinished:
  """The files of a job that has no readable result.

  Attributes:
    id: The id of the entry that the job creates.
    directory: The directory of the job.
    process: The process id of the running job, or None if it has ended.
    error: The reason why result.json cannot be read, or "" if there is none.
  """

  id: str
  directory: str
  process: int | None = None
  error: str = ''


@dataclasses.dataclass(frozen=True)
class Content:
  """The content of a store.

  Attributes:
    entries: The results, newest first.
    unfinished: The jobs that are still running or have failed.
    unreadable: The jobs whose result.json is damaged or has another format.
  """

  entries: tuple[Stored, ...]
  unfinished: tuple[Unfinished, ...]
  unreadable: tuple[Unfinished, ...]


class Store:
  """The results under a directory, which may not exist yet.

  Attributes:
    root: The directory.
  """

  def __init__(self, root: str):
    self.root = root

  def directory_for(self, entry_id: str, name: str) -> str:
    """Returns the output directory of a job, without creating it.

    Args:
      entry_id: The id of the job's entry; see entry.make_id.
      name: A name for people. Characters that a file name must not contain are
        replaced by "-".
    """
    plain = re.sub(r'[^A-Za-z0-9.-]+', '-', name).strip('.-') or 'result'
    return os.path.join(self.root, f'{plain}_{entry_id}')

  def find(self, entry_id: str) -> Stored | None:
    """Returns the result with an id, or None if no job with it has finished.

    Raises:
      OSError, ValueError: The result cannot be read.
    """
    for directory in self._directories():
      if _id(directory) == entry_id:
        if (stored := _read(directory)) is not None:
          return stored
    return None

  def resolve(self, letters: str) -> str:
    """Returns the only id in the store that starts with the given letters.

    Raises:
      ValueError: No id starts with these letters, or several do.
    """
    ids = sorted({_id(directory) for directory in self._directories()})
    matches = [i for i in ids if letters and i.startswith(letters)]
    if len(matches) == 1:
      return matches[0]
    if not matches:
      raise ValueError(
        f'no result {letters!r} in {self.root}. `list` shows the results'
      )
    raise ValueError(
      f'{letters!r} matches {", ".join(matches)}. Enter more letters of the id'
    )

  def all(self) -> Content:
    """Returns everything in the store. Unreadable results raise no error."""
    entries, unfinished, unreadable = [], [], []
    for directory in self._directories():
      entry_id = _id(directory)
      process = lock_holder(self._lock(entry_id))
      try:
        stored = _read(directory)
      except (OSError, ValueError) as error:
        reason = errors.reason(error)
        unreadable.append(Unfinished(entry_id, directory, process, reason))
        continue
      if stored is not None:
        entries.append(stored)
      if not _finished(directory) and os.path.isdir(directory):
        unfinished.append(Unfinished(entry_id, directory, process))
    entries.sort(key=lambda s: s.entry.began, reverse=True)
    return Content(tuple(entries), tuple(unfinished), tuple(unreadable))

  @contextlib.contextmanager
  def begin(self, entry_id: str, name: str) -> Iterator[str]:
    """Creates an empty directory for an entry and locks it for one job.

    Unfinished files of an earlier job are removed. An earlier result is kept
    until the job has written its own result, so a failed rerun loses nothing.

    Yields:
      The path of the directory.

    Raises:
      Busy: Another job is writing this entry.
      OSError: The directory cannot be created.
    """
    with hold_lock(self._lock(entry_id), f'result {entry_id}'):
      directory = self.directory_for(entry_id, name)
      previous = directory + _PREVIOUS
      for other in self._directories():
        if _id(other) == entry_id:
          for path in (other + _PREVIOUS, other):
            if path != previous:
              _set_aside(path, previous)
      os.makedirs(directory)
      yield directory
      if _finished(directory):
        _remove_tree(previous)

  def remove(self, entry_id: str) -> list[str]:
    """Removes all directories of an id, and returns their paths.

    Raises:
      Busy: A job is writing this entry.
      OSError: A file cannot be removed.
    """
    removed = []
    with hold_lock(self._lock(entry_id), f'result {entry_id}'):
      for directory in self._directories():
        if _id(directory) != entry_id:
          continue
        for path in (directory + _PREVIOUS, directory):
          if os.path.isdir(path):
            _remove_tree(path)
            removed.append(path)
    return removed

  def _lock(self, entry_id: str) -> str:
    return os.path.join(self.root, _LOCKS, entry_id)

  def _directories(self) -> list[str]:
    """Returns the sorted result paths, without the suffix of old results."""
    if not os.path.isdir(self.root):
      return []
    names = {name.removesuffix(_PREVIOUS) for name in os.listdir(self.root)}
    paths = (os.path.join(self.root, name) for name in sorted(names))
    return [
      path
      for path in paths
      if _DIRECTORY.fullmatch(os.path.basename(path))
      and (os.path.isdir(path) or os.path.isdir(path + _PREVIOUS))
    ]


def _id(directory: str) -> str:
  match = _DIRECTORY.fullmatch(os.path.basename(directory))
  assert match, directory
  return match['id']


def _finished(directory: str) -> bool:
  return os.path.isfile(os.path.join(directory, entry_lib.FILE))


def _read(directory: str) -> Stored | None:
  """Returns the result in a directory, or the one that a rerun will replace."""
  for path in (directory, directory + _PREVIOUS):
    if not _finished(path):
      continue
    entry = entry_lib.read(path)
    if entry.id != _id(directory):
      raise ValueError(
        f'{path} contains result {entry.id}. Rename the directory, so that it'
        f' ends in _{entry.id}'
      )
    return Stored(entry, path)
  return None


def _set_aside(directory: str, previous: str) -> None:
  """Moves a finished result away, and removes an unfinished one."""
  if not _finished(directory):
    _remove_tree(directory)
    return
  _remove_tree(previous)
  os.rename(directory, previous)


def _remove_tree(directory: str) -> None:
  if not os.path.isdir(directory):
    return
  # Remove this file first, so that a crash leaves nothing that resembles a
  # result.
  with contextlib.suppress(FileNotFoundError):
    os.remove(os.path.join(directory, entry_lib.FILE))
  shutil.rmtree(directory)


def find_job(name: str, results_dir: str) -> str:
  """Returns the directory of a job that the user has named.

  Args:
    name: A directory with a result.json, or an id, or the start of an id.
    results_dir: The directory to search for the id, at any depth.

  Raises:
    FileNotFoundError: There is no such job.
    ValueError: Several jobs have ids that start with `name`.
  """
  directory = user_path.resolve(name)
  if os.path.isfile(os.path.join(directory, entry_lib.FILE)):
    return directory
  if os.path.isdir(directory):
    raise FileNotFoundError(
      f'{directory} has no {entry_lib.FILE}, so it is not the result of a job.'
      ' Pass the directory that a job printed'
    )
  paths, unreadable = _with_id(name, results_dir)
  if not paths:
    but = f' ({unreadable[0]})' if unreadable else ''
    raise FileNotFoundError(
      f'{name!r} is neither a directory nor the id of a result below'
      f' {results_dir}{but}. Pass a directory with a {entry_lib.FILE}, or'
      ' correct --results_dir'
    )
  if len(paths) > 1:
    raise ValueError(
      f'{name!r} matches {len(paths)} results: {", ".join(sorted(paths))}.'
      ' Pass more letters of the id, or the directory'
    )
  return paths[0]


def _with_id(beginning: str, results_dir: str) -> tuple[list[str], list[str]]:
  """Returns the directories with matching ids, and the errors of others."""
  paths: list[str] = []
  unreadable: list[str] = []
  if len(beginning) < _FEWEST_LETTERS:
    return paths, unreadable
  for directory, names, files in os.walk(results_dir):
    if entry_lib.FILE not in files:
      # An old result that a rerun will replace has the same id.
      names[:] = [name for name in names if not name.endswith(_PREVIOUS)]
      continue
    names.clear()  # A job's directory contains no other jobs.
    try:
      if entry_lib.read(directory).id.startswith(beginning):
        paths.append(directory)
    except ValueError as error:
      unreadable.append(str(error))
  return paths, unreadable
