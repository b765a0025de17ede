"""Lists, shows, compares and removes the stored results of the harness.

results list [--benchmark=gptj] [--scenario=Offline] ...
results show ID [accuracy_report|performance|command|summary|json]
results compare ID ID...
results rerun ID
results rm ID... [--yes]
"""

from collections.abc import Sequence
import os
import sys

from absl import app
from absl import flags

from harness import dashes
from harness import errors
from harness.benchmarks import all as benchmarks
from harness.caching import cache as cache_lib
from harness.loadgen import loadgen_log
from harness.results import entry as entry_lib
from harness.results import store as store_lib
from harness.results.cli import views
from harness.rules import rounds
from saxml_ext.common import flag_rules
from saxml_ext.common.pages import text_columns

# The filters of `list`, by the entry field that each one compares.
_FILTERS = {
  'benchmark': flags.DEFINE_enum(
    'benchmark',
    None,
    list(benchmarks.BENCHMARKS),
    'List only results of this benchmark.',
  ),
  'model': flags.DEFINE_string(
    'model', None, 'List only results of this model, such as gptj-99.'
  ),
  'scenario': flags.DEFINE_enum(
    'scenario',
    None,
    rounds.SCENARIOS,
    'List only results of this scenario.',
    case_sensitive=False,
  ),
  'round': flags.DEFINE_enum(
    'round', None, list(rounds.ROUNDS), 'List only results of this round.'
  ),
  'system': flags.DEFINE_string(
    'system', None, 'List only results of this kind of system, such as cell.'
  ),
}
_VALID = flags.DEFINE_bool(
  'valid',
  None,
  'List only results that LoadGen judged valid, or, with --novalid, only the'
  ' others.',
)
_UNFINISHED = flags.DEFINE_bool(
  'unfinished', False, 'Also list the jobs that ended without a result.'
)
_YES = flags.DEFINE_bool('yes', False, 'Remove without asking.')

flag_rules.act_only(
  'with list',
  lambda: flag_rules.command('list') == 'list',
  f'{" ".join(_FILTERS)} valid unfinished',
)
flag_rules.act_only('with rm', lambda: flag_rules.command() == 'rm', 'yes')

_PARTS = ('accuracy_report', 'performance', 'command', 'summary', 'json')
_USAGE = (
  'use `list`, `show ID [PART]`, `compare ID ID...`, `rerun ID` or `rm ID...`,'
  f' where PART is one of {", ".join(_PARTS)}'
)


def main(argv: Sequence[str]) -> None:
  command, arguments = (argv[1], argv[2:]) if len(argv) > 1 else ('list', [])
  store = store_lib.Store(cache_lib.get().results)
  with dashes.exit_on(
    'results', (errors.HarnessError, OSError, ValueError), text=errors.reason
  ):
    if command == 'list' and not arguments:
      _list(store)
    elif command == 'show' and len(arguments) in (1, 2):
      _show(store, *arguments)
    elif command == 'compare' and arguments:
      entries = [_find(store, entry_id).entry for entry_id in arguments]
      text_columns.show(views.side_by_side(entries))
    elif command == 'rerun' and len(arguments) == 1:
      print(views.command(_find(store, arguments[0]).entry, '--rerun'))
    elif command == 'rm' and arguments:
      _remove(store, arguments)
    else:
      raise app.UsageError(f'{" ".join(argv[1:])}: {_USAGE}')


def _find(store: store_lib.Store, letters: str) -> store_lib.Stored:
  """Returns the finished result whose id starts with the given letters.

  Raises:
    OSError, ValueError: There is no such result, or it cannot be read.
  """
  entry_id = store.resolve(letters)
  stored = store.find(entry_id)
  if stored is None:
    raise ValueError(
      f'result {entry_id} is not finished. Its job is running or has failed.'
      ' `list` prints the directory of its files'
    )
  return stored


def _list(store: store_lib.Store) -> None:
  content = store.all()
  chosen = [item.entry for item in content.entries if _matches(item.entry)]
  if chosen:
    rows = [views.HEADING, *map(views.row, chosen)]
    text_columns.show(rows, left=range(len(rows[0])))
  else:
    print(f'no results{" of that kind" if content.entries else ""}', end='')
    print(f' in {store.root}')
  failed = [item for item in content.unfinished if not item.process]
  for item in content.unfinished:
    if item.process:
      print(f'running: {item.id}, process {item.process}; {item.directory}')
  if failed and not _UNFINISHED.value:
    print(
      f'jobs that ended without a result: {len(failed)}. --unfinished lists'
      ' them, and rm removes their files'
    )
  for item in failed if _UNFINISHED.value else ():
    print(f'unfinished: {item.id}, no result; {item.directory}')
  for item in content.unreadable:
    print(f'unreadable: {item.id}; {item.error}', file=sys.stderr)


def _matches(entry: entry_lib.Entry) -> bool:
  for name, flag in _FILTERS.items():
    if flag.value is not None and getattr(entry, name) != flag.value:
      return False
  if _VALID.value is None:
    return True
  return entry.performance is not None and (
    entry.performance.valid == _VALID.value
  )


def _show(
  store: store_lib.Store, letters: str, part: str | None = None
) -> None:
  stored = _find(store, letters)
  if part is None:
    print(views.overview(stored))
  elif part == 'command':
    print(views.command(stored.entry))
  elif part == 'json':
    path = os.path.join(stored.directory, entry_lib.FILE)
    with open(path, encoding='utf-8') as file:
      sys.stdout.write(file.read())
  elif part == 'accuracy_report':
    print(_accuracy(stored).line)
  elif part == 'performance':
    run = _performance(stored)
    log = loadgen_log.read(os.path.join(stored.directory, 'performance/run_1'))
    print(views.performance_line(run, log))
  elif part == 'summary':
    sys.stdout.write(_performance(stored).summary)
  else:
    raise ValueError(f'no part {part!r}. Available: {", ".join(_PARTS)}')


def _accuracy(stored: store_lib.Stored) -> entry_lib.Accuracy:
  if stored.entry.accuracy is None:
    raise ValueError(f'result {stored.id} has no accuracy run')
  return stored.entry.accuracy


def _performance(stored: store_lib.Stored) -> entry_lib.Performance:
  if stored.entry.performance is None:
    raise ValueError(f'result {stored.id} has no performance run')
  return stored.entry.performance


def _remove(store: store_lib.Store, arguments: Sequence[str]) -> None:
  ids = [store.resolve(letters) for letters in arguments]
  if not _YES.value and not _agreed(f'remove {", ".join(ids)}?'):
    print('nothing removed')
    return
  for entry_id in ids:
    for directory in store.remove(entry_id):
      print(f'removed {directory}')


def _agreed(question: str) -> bool:
  if not sys.stdin.isatty():
    raise ValueError(f'{question} There is no terminal to ask on. Pass --yes')
  return input(f'{question} [y/N] ').strip().lower() in ('y', 'yes')


if __name__ == '__main__':
  dashes.run(main)
