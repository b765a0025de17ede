import os
import platform
import shutil
import subprocess
import unittest

from absl.testing import absltest
import numpy as np

from harness.description import software


class SoftwareTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _versions(self) -> dict[str, str]:
    return software.versions({'BUILD_WORKSPACE_DIRECTORY': self._dir})

  def test_versions(self):
    found = self._versions()
    self.assertEqual(found['python'], platform.python_version())
    self.assertEqual(found['numpy'], np.__version__)
    self.assertContainsSubset(found, {'python', 'commit', *software.PACKAGES})
    self.assertNotIn('commit', found)

  @unittest.skipUnless(shutil.which('git'), 'There is no git here.')
  def test_commit(self):
    def git(*words: str) -> str:
      settings = ('-c', 'user.name=a', '-c', 'user.email=b')
      return subprocess.run(
        ['git', '-C', self._dir, *settings, *words],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {'GIT_CONFIG_GLOBAL': '/dev/null'},
      ).stdout.strip()

    path = os.path.join(self._dir, 'file')
    with open(path, 'w', encoding='utf-8') as file:
      file.write('1')
    git('init', '-q')
    git('add', '.')
    git('commit', '-q', '-m', 'first')
    commit = git('rev-parse', 'HEAD')
    self.assertEqual(self._versions()['commit'], commit)
    with open(path, 'w', encoding='utf-8') as file:
      file.write('22')
    self.assertEqual(self._versions()['commit'], commit + '-dirty')

  def test_framework(self):
    found = {'python': '3.11', 'torch': '2.13.0'}
    self.assertEqual(software.framework(found, 'torch'), 'PyTorch 2.13.0')
    self.assertEqual(software.framework(found, 'onnxruntime'), 'ONNX Runtime')
    self.assertEqual(software.framework(found), 'JAX')

  def test_stack(self):
    self.assertEqual(
      software.stack({'python': '3.11', 'jax': '0.1', 'commit': 'ab'}),
      'Python 3.11, jax 0.1',
    )


if __name__ == '__main__':
  absltest.main()
