"""Shows what the cache of data, models, programs and results holds; cleans it.

cache show
cache rm NAME... | --kind=KIND [--older_than=30d] [--yes]
cache path KIND
"""

from collections.abc import Sequence
import datetime
import re
import sys
import time

from absl import app
from absl import flags

from harness import dashes
from harness.caching import cache as cache_lib
from harness.caching import cache_flag
from harness.caching import entries
from saxml_ext.common import flag_rules
from saxml_ext.common.pages import text_columns

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
  cache = cache_flag.get()
  with dashes.exit_on('cache'):
    if command == 'show' and not arguments:
      _show(cache)
    elif command == 'path' and len(arguments) == 1:
      print(cache.create().folder(arguments[0]))
    elif command == 'rm':
      _remove(cache, arguments)
    else:
      raise app.UsageError(f'{" ".join(argv[1:])}: {_USAGE}')


def _chosen(
  cache: cache_lib.Cache, names: Sequence[str] = ()
) -> list[entries.Entry]:
  since = None
  if _OLDER_THAN.value is not None:
    since = time.time() - seconds(_OLDER_THAN.value)
  return entries.select(entries.list_entries(cache), names, _KIND.value, since)


def seconds(age: str) -> int:
  """The length of a time such as 30d, in seconds.

  Raises:
    ValueError: it is not written so.
  """
  found = re.fullmatch(r'(\d+)([hdw])', age)
  if not found:
    raise ValueError(
      f'--older_than={age}: write a number and h, d or w, such as 30d'
    )
  return int(found[1]) * _SECONDS[found[2]]


def _show(cache: cache_lib.Cache) -> None:
  for link in entries.links(cache):
    print(
      f'{link} is a symbolic link: what it leads to is neither listed nor'
      ' removed'
    )
  chosen = _chosen(cache)
  print(_table(chosen) if chosen else f'nothing in {cache.root}')


def _table(chosen: Sequence[entries.Entry]) -> str:
  rows = [('kind', 'name', 'size', 'last use', 'path')]
  # Compiled programs are thousands of files with hashes for names.
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
  kind: str, name: str, together: Sequence[entries.Entry], path: str
) -> tuple[str, str, str, str, str]:
  last_use = max(entry.last_use for entry in together)
  day = datetime.datetime.fromtimestamp(last_use).strftime('%Y-%m-%d %H:%M')
  return kind, name, size(sum(entry.size for entry in together)), day, path


def size(count: int) -> str:
  """Bytes in decimal units, as disks are sold: 1500 is "1.5 kB"."""
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
    entries.remove(cache, entry)
  print(f'removed {total}')


if __name__ == '__main__':
  dashes.run(main)
