"""Lists the cache of data, models, programs and results, and cleans it.

cache show
cache rm NAME... | --kind=KIND [--older_than=30d] [--yes]
cache path KIND
"""

from collections.abc import Iterator, Sequence
import dataclasses
import datetime
import os
import re
import shutil
import sys
import time

from absl import app
from absl import flags

from harness import dashes
from harness.caching import cache as cache_lib
from saxml_ext.common import flag_rules
from saxml_ext.common.pages import text_columns


@dataclasses.dataclass(frozen=True)
class Entry:
  """An entry of the cache: a file or folder directly in the folder of its kind.

  Attributes:
    kind: The kind, one of cache.KINDS.
    name: The name of the file or folder.
    path: The path of the entry.
    size: The total size of its files in bytes.
    last_use: The time when one of its files was last read or written, in
      seconds since the epoch. It is as exact as the access times of the file
      system.
  """

  kind: str
  name: str
  path: str
  size: int
  last_use: float


def list_entries(cache: cache_lib.Cache) -> list[Entry]:
  """Returns all entries, by kind and name.

  A cache that does not exist has no entries. A folder of a kind that is a
  symbolic link is left out, because its contents lie outside of the cache.

  Raises:
    OSError: A folder cannot be read.
  """
  entries = []
  for kind in cache_lib.KINDS:
    folder = cache.folder(kind)
    if os.path.isdir(folder) and not os.path.islink(folder):
      entries += [
        _entry(kind, folder, name) for name in sorted(os.listdir(folder))
      ]
  return entries


def links(cache: cache_lib.Cache) -> list[str]:
  """Returns the folders of kinds that are symbolic links."""
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
    # Listing a directory updates its access time, so only files count.
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
  entries: Sequence[Entry],
  names: Sequence[str] = (),
  kind: str | None = None,
  unused_since: float | None = None,
) -> list[Entry]:
  """Selects the entries that meet all conditions.

  Args:
    entries: The entries to select from.
    names: The names, written as "name" or "kind/name". An empty list selects
      all entries.
    kind: The kind of the entries; None: any kind.
    unused_since: The time in seconds since the epoch. Entries that were used
      later are left out. None: any time.

  Raises:
    ValueError: A name matches no entry, or entries of several kinds.
  """
  pool = [entry for entry in entries if kind in (None, entry.kind)]
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
  """Removes an entry. If it is a symbolic link, its target stays.

  Raises:
    ValueError: The directory is not a cache of the harness, or the entry is not
      in it.
    OSError: The entry cannot be removed.
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


_KIND = flags.DEFINE_enum(
  'kind', None, cache_lib.KINDS, 'Show or remove entries of this kind only.'
)
_OLDER_THAN = flags.DEFINE_string(
  'older_than',
  None,
  'Show or remove only what was not used for this long, such as 30d, 2w or 12h.',
)
_YES = flags.DEFINE_bool('yes', False, 'Remove without asking.')

flag_rules.act_only(
  'with show and rm',
  lambda: flag_rules.command('show') != 'path',
  'kind older_than',
)
flag_rules.act_only('with rm', lambda: flag_rules.command() == 'rm', 'yes')

_SECONDS = {'h': 3600, 'd': 24 * 3600, 'w': 7 * 24 * 3600}
_USAGE = (
  'say `show`, `path KIND`, `rm NAME...`, `rm --kind=KIND` or'
  ' `rm --older_than=30d`'
)


def main(argv: Sequence[str]) -> None:
  command, arguments = (argv[1], argv[2:]) if len(argv) > 1 else ('show', [])
  cache = cache_lib.get()
  with dashes.exit_on('cache'):
    if command == 'show' and not arguments:
      _show(cache)
    elif command == 'path' and len(arguments) == 1:
      print(cache.create().folder(arguments[0]))
    elif command == 'rm':
      _remove(cache, arguments)
    else:
      raise app.UsageError(f'{" ".join(argv[1:])}: {_USAGE}')


def _chosen(cache: cache_lib.Cache, names: Sequence[str] = ()) -> list[Entry]:
  since = None
  if _OLDER_THAN.value is not None:
    since = time.time() - seconds(_OLDER_THAN.value)
  return select(list_entries(cache), names, _KIND.value, since)


def seconds(age: str) -> int:
  """Converts a duration such as 30d to seconds.

  Raises:
    ValueError: The duration has another format.
  """
  match = re.fullmatch(r'(\d+)([hdw])', age)
  if not match:
    raise ValueError(
      f'--older_than={age}: write a number and h, d or w, such as 30d'
    )
  return int(match[1]) * _SECONDS[match[2]]


def _show(cache: cache_lib.Cache) -> None:
  for link in links(cache):
    print(
      f'{link} is a symbolic link: what it leads to is neither listed nor'
      ' removed'
    )
  chosen = _chosen(cache)
  print(_table(chosen) if chosen else f'nothing in {cache.root}')


def _table(chosen: Sequence[Entry]) -> str:
  rows = [('kind', 'name', 'size', 'last use', 'path')]
  # Compiled programs are thousands of files that have hashes as names.
  programs = [entry for entry in chosen if entry.kind == 'jax']
  for entry in chosen:
    if entry.kind != 'jax':
      rows.append(_row(entry.kind, entry.name, [entry], entry.path))
  if programs:
    folder = programs[0].path.rpartition('/')[0]
    rows.append(_row('jax', f'({len(programs)} files)', programs, folder))
  rows.append(_row('all', '', chosen, ''))
  return text_columns.render(rows, left=(0, 1, 4))


def _row(
  kind: str, name: str, together: Sequence[Entry], path: str
) -> tuple[str, str, str, str, str]:
  last_use = max(entry.last_use for entry in together)
  day = datetime.datetime.fromtimestamp(last_use).strftime('%Y-%m-%d %H:%M')
  return kind, name, size(sum(entry.size for entry in together)), day, path


def size(count: int) -> str:
  """Formats a number of bytes in decimal units: 1500 is "1.5 kB"."""
  value, unit = float(count), 'B'
  for unit in ('B', 'kB', 'MB', 'GB', 'TB'):
    if value < 999.95 or unit == 'TB':
      break
    value /= 1000
  return f'{count} B' if unit == 'B' else f'{value:.1f} {unit}'


def _remove(cache: cache_lib.Cache, names: Sequence[str]) -> None:
  if not names and _KIND.value is None and _OLDER_THAN.value is None:
    raise app.UsageError(f'rm: nothing is named; {_USAGE}')
  chosen = _chosen(cache, names)
  if not chosen:
    print('nothing to remove')
    return
  what = 'entry' if len(chosen) == 1 else 'entries'
  total = f'{len(chosen)} {what} ({size(sum(e.size for e in chosen))})'
  if not _YES.value:
    print(_table(chosen))
    if not sys.stdin.isatty():
      raise ValueError(
        f'{total} would go; there is no terminal to'
        ' ask on, so nothing is removed; --yes removes them'
      )
    print(f'Remove {total}? [y/N] ', end='', flush=True)
    if sys.stdin.readline().strip().lower() not in ('y', 'yes'):
      print('nothing removed')
      return
  for entry in chosen:
    remove(cache, entry)
  print(f'removed {total}')


if __name__ == '__main__':
  dashes.run(main)
