"""What lies in the cache, and its removal.

Removal touches nothing but what a listing of the cache has found: a name is
looked up there, never joined to a path.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import os
import shutil

from harness.caching import cache as cache_lib


@dataclasses.dataclass(frozen=True)
class Entry:
  """One thing in the cache: what lies directly in the folder of its kind.

  Attributes:
    kind: one of cache.KINDS.
    name: its file name.
    path: where it lies.
    size: bytes in all its files.
    last_use: when one of its files was last read or written, in seconds since
      the epoch; as exact as the file system notes reads.
  """

  kind: str
  name: str
  path: str
  size: int
  last_use: float


def list_entries(cache: cache_lib.Cache) -> list[Entry]:
  """All entries, by kind and name. A cache that does not exist has none.

  A folder of a kind that is a symbolic link is left out: what it holds lies
  outside of the cache.

  Raises:
    OSError: a folder cannot be read.
  """
  found = []
  for kind in cache_lib.KINDS:
    folder = cache.folder(kind)
    if os.path.isdir(folder) and not os.path.islink(folder):
      found += [
        _entry(kind, folder, name) for name in sorted(os.listdir(folder))
      ]
  return found


def links(cache: cache_lib.Cache) -> list[str]:
  """Folders of kinds that are symbolic links to somewhere else."""
  folders = (cache.folder(kind) for kind in cache_lib.KINDS)
  return [folder for folder in folders if os.path.islink(folder)]


def _entry(kind: str, folder: str, name: str) -> Entry:
  path = os.path.join(folder, name)
  states = [os.lstat(file) for file in _files(path)]
  own = os.lstat(path)
  return Entry(
    kind,
    name,
    path,
    sum(state.st_size for state in states),
    # Reading a directory's list counts as its use, so only files tell.
    max(
      (max(state.st_atime, state.st_mtime) for state in states),
      default=own.st_mtime,
    ),
  )


def _files(path: str) -> Iterator[str]:
  if os.path.islink(path) or not os.path.isdir(path):
    yield path
    return
  for folder, _, names in os.walk(path):
    for name in names:
      yield os.path.join(folder, name)


def select(
  found: Sequence[Entry],
  names: Sequence[str] = (),
  kind: str | None = None,
  unused_since: float | None = None,
) -> list[Entry]:
  """Entries that fit everything that is asked.

  Args:
    found: all there are.
    names: "name" or "kind/name"; none stands for all.
    kind: only those of this kind.
    unused_since: only those not used since then, in seconds since the epoch.

  Raises:
    ValueError: a name fits no entry, or entries of several kinds.
  """
  pool = [entry for entry in found if kind in (None, entry.kind)]
  if names:
    pool = list(dict.fromkeys(_named(pool, name) for name in names))
  if unused_since is not None:
    pool = [entry for entry in pool if entry.last_use < unused_since]
  return pool


def _named(pool: Sequence[Entry], name: str) -> Entry:
  fitting = [
    entry
    for entry in pool
    if name in (entry.name, f'{entry.kind}/{entry.name}')
  ]
  if not fitting:
    raise ValueError(f'the cache holds no {name!r}; `show` lists what it holds')
  if len(fitting) > 1:
    choices = ' or '.join(f'{entry.kind}/{entry.name}' for entry in fitting)
    raise ValueError(f'the cache holds more than one {name!r}: say {choices}')
  return fitting[0]


def remove(cache: cache_lib.Cache, entry: Entry) -> None:
  """Removes an entry. A symbolic link goes, what it leads to stays.

  Raises:
    ValueError: the directory is no cache of ours, or the entry is not in it.
    OSError: it cannot be removed.
  """
  if not cache.is_ours:
    raise ValueError(
      f'{cache.root} is no cache of this program: it has no {cache_lib.TAG} of'
      f' ours, so nothing is removed there; if it shall be one, run `path data`'
      ' with the same --cache_dir first'
    )
  root = os.path.realpath(cache.root)
  folder = os.path.realpath(os.path.dirname(entry.path))
  if folder not in [os.path.join(root, kind) for kind in cache_lib.KINDS]:
    raise ValueError(f'{entry.path} is not in the cache {cache.root}')
  path = os.path.join(folder, os.path.basename(entry.path))
  if os.path.islink(path) or not os.path.isdir(path):
    os.unlink(path)
  else:
    shutil.rmtree(path)
