"""Tests the script that names the commit for the labels of images."""

import os
import pathlib
import shutil
import subprocess

from absl.testing import absltest

_SCRIPT = pathlib.Path(__file__).with_name('status.sh')
_GIT = ('git', '-c', 'user.name=x', '-c', 'user.email=x@example.com')


class StatusTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.checkout = pathlib.Path(self.create_tempdir().full_path)

  def _status(self, path: str = os.environ['PATH']) -> str:
    return subprocess.run(
      ['/bin/sh', _SCRIPT],
      check=True,
      cwd=self.checkout,
      env={'PATH': path, 'GIT_CEILING_DIRECTORIES': str(self.checkout.parent)},
      stdout=subprocess.PIPE,
      text=True,
    ).stdout

  def _git(self, *words: str) -> str:
    return subprocess.check_output(
      [*_GIT, *words], cwd=self.checkout, text=True
    ).strip()

  def test_names_the_commit_and_changes(self):
    if shutil.which('git') is None:
      self.skipTest('needs git')
    file = self.checkout / 'file'
    file.write_text('a')
    self._git('init', '--quiet')
    self._git('add', 'file')
    self._git('commit', '--quiet', '--message=x')
    self._git('tag', 'v1')
    commit = self._git('rev-parse', 'HEAD')
    self.assertEqual(self._status(), f'STABLE_REVISION {commit}\n')
    file.write_text('b')
    self.assertEqual(self._status(), f'STABLE_REVISION {commit}-dirty\n')

  def test_prints_nothing_without_a_checkout(self):
    self.assertEqual(self._status(), '')

  def test_prints_nothing_without_git(self):
    self.assertEqual(self._status(path='/nowhere'), '')


if __name__ == '__main__':
  absltest.main()
