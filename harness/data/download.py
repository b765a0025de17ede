"""Prints the commands that fetch the official data and models.

download [--benchmark=gptj|bert|llama3.1-8b] [--verify]

It does not run the commands, because the files are large and the user must
accept their licenses. With --verify it checks the files in the cache.
"""

from collections.abc import Sequence
import sys

from absl import app
from absl import flags

from harness import dashes
from harness.caching import cache as cache_lib
from harness.data import official

_BENCHMARK = flags.DEFINE_enum(
  'benchmark', None, official.BENCHMARKS, 'The benchmark. Default: all of them.'
)
_VERIFY = flags.DEFINE_bool(
  'verify', False, 'Check the cached files. Exit code 1: a file is wrong.'
)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  cache = cache_lib.get()
  wrong = 0
  for item in official.ITEMS:
    if _BENCHMARK.value not in (None, item.benchmark):
      continue
    path = item.usable_path(cache)
    if path is None:
      _print_commands(item, cache)
    elif _VERIFY.value:
      wrong += not _verify(item, path)
    else:
      print(f'\n# {item.benchmark} {item.name}: {path} (--verify checks it)')
  if wrong:
    raise SystemExit(
      f'download: {wrong} of the files in {cache.root} are not the official'
      ' ones. Remove them and fetch them again.'
    )


def _print_commands(item: official.Item, cache: cache_lib.Cache) -> None:
  optional = ' (optional)' if item.optional else ''
  print(f'\n# {item.benchmark} {item.name}{optional}: {item.what}')
  print(f'# path: {item.cache_path(cache)}')
  print(f'# MD5 {item.md5}' if item.md5 else '# no checksum is published')
  for line in item.instructions(cache):
    print(line)


def _verify(item: official.Item, path: str) -> bool:
  print(f'\n# {item.benchmark} {item.name}: {path}')
  sys.stdout.flush()
  try:
    print(f'# OK: {item.check(path)}')
  except (OSError, ValueError) as error:
    print(f'# WRONG: {error}')
    return False
  return True


if __name__ == '__main__':
  dashes.run(main)
