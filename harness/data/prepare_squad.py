"""Checks SQuAD v1.1 and BERT's vocabulary, and copies them into the cache.

prepare_squad --dev=dev-v1.1.json [--vocab=vocab.txt]
"""

from collections.abc import Sequence
import os
import shutil

from absl import app
from absl import flags

from harness import dashes
from harness.caching import cache as cache_lib
from harness.data import official
from saxml_ext.common import files
from saxml_ext.common import user_path

_DEV = flags.DEFINE_string('dev', None, 'The dev-v1.1.json of SQuAD v1.1.')
_VOCAB = flags.DEFINE_string(
  'vocab', None, 'The vocab.txt of BERT-Large uncased.'
)


def main(argv: Sequence[str]) -> None:
  given = {'dataset': _DEV.value, 'vocab': _VOCAB.value}
  if len(argv) > 1 or not any(given.values()):
    raise app.UsageError('Pass --dev=dev-v1.1.json, --vocab=vocab.txt or both.')
  with dashes.exit_on('prepare_squad'):
    cache = cache_lib.get().create()
    for name, path in given.items():
      if path:
        _keep(name, user_path.resolve(path), cache)


def _keep(name: str, path: str, cache: cache_lib.Cache) -> None:
  item = official.item('bert', name)
  verdict = item.check(path)
  target = item.cache_path(cache)
  if not (os.path.exists(target) and os.path.samefile(path, target)):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(path, 'rb') as source, files.replacing(target, 'wb') as copy:
      shutil.copyfileobj(source, copy)
  print(f'{target}: {verdict}')


if __name__ == '__main__':
  dashes.run(main)
