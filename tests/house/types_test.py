"""Tests that mypy finds no error in production code."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

from tests.house import tree

_CONFIG = pathlib.Path(__file__).with_name('mypy.ini')


class TypesTest(absltest.TestCase):
  def test_mypy(self):
    paths = [str(p) for p in tree.files('*.py') if tree.is_production(p)]
    self.assertNotEmpty(paths)
    done = subprocess.run(
      [
        sys.executable,
        '-m',
        'mypy',
        f'--config-file={_CONFIG}',
        f'--cache-dir={self.create_tempdir().full_path}',
        *paths,
      ],
      cwd=tree.ROOT,
      env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )
    self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == '__main__':
  absltest.main()
