"""Tests that the sources are formatted and free of lint: ruff, buildifier."""

import pathlib
import subprocess
import sys

from absl.testing import absltest

from tests.house import tree

# Bazel's name for what @buildifier fetches; it lies beside the repository.
_BUILDIFIER = 'external/buildifier/program'


def _buildifier() -> pathlib.Path:
  for root in (tree.ROOT, tree.ROOT.parent):
    for path in (root / _BUILDIFIER, root / 'buildifier/program'):
      if path.is_file():
        return path
  raise FileNotFoundError(f'{_BUILDIFIER} is not among the runfiles')


class LintTest(absltest.TestCase):
  def check(self, command: list[str]) -> None:
    done = subprocess.run(
      command,
      cwd=tree.ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )
    self.assertEqual(done.returncode, 0, done.stdout)

  def ruff(self, *command: str) -> None:
    paths = [str(path) for path in tree.files('*.py')]
    self.assertNotEmpty(paths)
    self.check([sys.executable, '-m', 'ruff', *command, '--no-cache', *paths])

  def test_ruff_format(self):
    self.ruff('format', '--diff')

  def test_ruff_check(self):
    self.ruff('check')

  def test_buildifier(self):
    program = str(_buildifier())
    there = subprocess.run([program, '--version'], capture_output=True)
    if there.returncode == 127:
      self.skipTest(there.stderr.decode().strip())
    paths = [*tree.files('BUILD'), *tree.files('*.bzl')]
    self.assertNotEmpty(paths)
    arguments = ['-mode=check', '-lint=warn', *map(str, paths)]
    self.check([program, *arguments])


if __name__ == '__main__':
  absltest.main()
