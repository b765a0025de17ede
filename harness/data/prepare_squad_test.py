import contextlib
import dataclasses
import io
import os
from unittest import mock

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver

from harness.caching import cache as cache_lib
from harness.data import checks
from harness.data import official
from harness.data import prepare_squad


class PrepareSquadTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._cache = cache_lib.Cache(os.path.join(self._dir, 'cache'))

  def _write(self, name: str, text: str) -> str:
    path = os.path.join(self._dir, name)
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text)
    return path

  def _run(self, **values) -> str:
    printed = io.StringIO()
    values = {'cache_dir': self._cache.root} | values
    with flagsaver.flagsaver(**values), contextlib.redirect_stdout(printed):
      prepare_squad.main(('prepare_squad',))
    return printed.getvalue()

  def test_keeps_the_official_file(self):
    # SQuAD itself cannot be part of the repository. Another file with a
    # matching checksum stands for it.
    dev = self._write('dev.json', 'questions')
    md5 = checks.digest(dev, 'md5')
    items = [
      dataclasses.replace(item, check=lambda path: checks.squad(path, md5))
      for item in official.ITEMS
    ]
    with mock.patch.object(official, 'ITEMS', items):
      printed = self._run(dev=dev)
      kept = official.path('bert', 'dataset', self._cache)
      self.assertIn(f'{kept}: 10570 questions, MD5 {md5}', printed)
      self.assertEqual(self._run(dev=kept), printed)
    with open(kept, encoding='utf-8') as file:
      self.assertEqual(file.read(), 'questions')

  def test_refuses_other_files(self):
    for values, message in (
      ({'dev': self._write('dev.json', '{}')}, 'not a file of SQuAD'),
      ({'vocab': self._write('vocab.txt', 'a\nb\n')}, 'has 2 words'),
      ({'dev': '/no/dev.json'}, '/no/dev.json'),
    ):
      with self.assertRaisesRegex(SystemExit, f'prepare_squad: .*{message}'):
        self._run(**values)
    self.assertEmpty(os.listdir(self._cache.data))

  def test_wants_a_file(self):
    with self.assertRaisesRegex(app.UsageError, 'Pass --dev'):
      self._run()


if __name__ == '__main__':
  absltest.main()
