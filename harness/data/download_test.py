import contextlib
import io
import os

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver

from harness.caching import cache as cache_lib
from harness.data import download
from harness.data import official


class DownloadTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    root = os.path.join(self.create_tempdir().full_path, 'cache')
    self._cache = cache_lib.Cache(root)

  def _run(self, **values) -> str:
    self._printed = io.StringIO()
    values = {'cache_dir': self._cache.root} | values
    with (
      flagsaver.flagsaver(**values),
      contextlib.redirect_stdout(self._printed),
    ):
      download.main(('download',))
    return self._printed.getvalue()

  def test_tells_the_commands_of_what_is_missing_and_runs_none(self):
    printed = self._run()
    for item in official.ITEMS:
      self.assertIn(f'\n# {item.benchmark} {item.name}', printed)
      for line in item.instructions(self._cache):
        self.assertIn(f'\n{line}\n', printed)
    self.assertIn('\n# MD5 3e85deb501d4e538b6bc56f786231552\n', printed)
    self.assertIn('gpt-j-model-checkpoint.uri\n', printed)
    self.assertFalse(os.path.exists(self._cache.root))
    self.assertNotIn('bert', self._run(benchmark='gptj'))

  def test_verifies_what_is_there(self):
    path = official.item('bert', 'vocab').cache_path(self._cache)
    os.makedirs(os.path.dirname(path))
    with open(path, 'w', encoding='utf-8') as file:
      file.write('[PAD]\n')
    printed = self._run(benchmark='bert')
    self.assertIn(f'# bert vocab: {path} (--verify checks it)', printed)
    self.assertNotIn('vocab.txt https', printed)
    with self.assertRaisesRegex(SystemExit, '1 of the files in'):
      self._run(benchmark='bert', verify=True)
    self.assertIn('# WRONG: ', self._printed.getvalue())
    self.assertIn('has 1 words', self._printed.getvalue())

  def test_nothing_there_is_nothing_wrong(self):
    self.assertEqual(self._run(verify=True), self._run())

  def test_takes_no_arguments(self):
    with self.assertRaisesRegex(app.UsageError, "'extra'"):
      download.main(('download', 'extra'))


if __name__ == '__main__':
  absltest.main()
