"""Tests the list of old figures."""

import pathlib
import shutil
import subprocess
from unittest import mock

from absl.testing import absltest

from tests.house import old_figures


class OldFiguresTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = pathlib.Path(self.create_tempdir().full_path)
    for folder in ('docs', 'engine', 'client'):
      (self._root / folder).mkdir()

  def _page(self, *marks: str) -> None:
    text = '\n'.join(['# Page', *(f'<!-- {mark} -->' for mark in marks)])
    (self._root / 'docs' / 'page.md').write_text(text, encoding='utf-8')

  def test_marks_that_cannot_be_read(self):
    for mark, reason in (
      ('measured: yesterday engine', 'page.md:2 has .* Write the commit'),
      ('measured: 257b2e4', 'page.md:2 has .* Write the commit'),
      ('measured:', 'page.md:2 has .* Write the commit'),
      ('measured: 257b2e4 engin', 'names engin, which does not exist'),
    ):
      self._page(mark)
      with self.assertRaisesRegex(ValueError, reason):
        list(old_figures.figures(self._root))

  def test_ages_are_commits_of_what_was_measured(self):
    if not shutil.which('git'):
      self.skipTest('git is not on the PATH')
    git = ('git', '-c', 'user.name=A', '-c', 'user.email=a@b.c')

    def run(*args: str) -> str:
      done = subprocess.run(
        [*git, *args], cwd=self._root, check=True, capture_output=True
      )
      return done.stdout.decode().strip()

    def commit(folder: str) -> str:
      with open(self._root / folder / 'file', 'a', encoding='utf-8') as file:
        file.write('x')
      run('add', '-A')
      run('commit', '-qm', 'Change')
      return run('rev-parse', '--short', 'HEAD')

    run('init', '-q')
    first = commit('engine')
    last = [commit('client' if i % 3 else 'engine') for i in range(12)][-1]
    self._page(
      f'measured: {last} engine',
      f'measured: {first} engine client',
      f'measured: {first} client',
      f'measured: {first} engine',
    )
    ages = [
      (figure.line, old_figures.age(self._root, figure))
      for figure in old_figures.figures(self._root)
    ]
    self.assertEqual(ages, [(2, 0), (3, 12), (4, 8), (5, 4)])
    with mock.patch.object(old_figures, '_MOST', 3):
      lines = list(old_figures.report(self._root))
    self.assertStartsWith(lines[0].strip(), '12 commits  docs/page.md:3')
    self.assertEqual(
      [line.endswith('OLD') for line in lines[:4]], [True, True, True, False]
    )
    self.assertStartsWith(lines[-1], '3 of 4 marked figures')
    self._page('measured: 0000000 engine')
    with self.assertRaisesRegex(ValueError, '0000000, which git does not find'):
      list(old_figures.report(self._root))


if __name__ == '__main__':
  absltest.main()
