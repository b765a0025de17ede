"""Tests that mypy finds no error, in production code and in tests."""

from collections.abc import Iterable
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

from tests.house import tree

_HERE = pathlib.Path(__file__).parent
# Stand-ins for packages of upstream, which have other roots.
_UPSTREAM = pathlib.PurePath('third_party/saxml')


class TypesTest(absltest.TestCase):
  def check(self, config: str, paths: Iterable[pathlib.Path]) -> None:
    names = [str(path) for path in paths]
    self.assertNotEmpty(names)
    done = subprocess.run(
      [
        sys.executable,
        '-m',
        'mypy',
        f'--config-file={_HERE / config}',
        f'--cache-dir={self.create_tempdir().full_path}',
        *names,
      ],
      cwd=tree.ROOT,
      env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )
    self.assertEqual(done.returncode, 0, done.stdout)

  def test_mypy(self):
    self.check('mypy.ini', filter(tree.is_production, tree.files('*.py')))

  def test_mypy_of_tests(self):
    self.check(
      'mypy_tests.ini',
      (
        path
        for path in tree.files('*.py')
        if not tree.is_production(path) and _UPSTREAM not in path.parents
      ),
    )


if __name__ == '__main__':
  absltest.main()
