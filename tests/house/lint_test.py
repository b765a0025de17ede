"""Tests that the sources are formatted and free of lint: ruff, buildifier."""

import pathlib
import subprocess

from absl.testing import absltest
import ruff

from tests.house import tree

# Bazel's directory of @buildifier is beside the repository's. With modules, its
# name begins with the name of the extension: `+lint+buildifier`.
_BUILDIFIER = '*buildifier/program'


def _buildifier() -> pathlib.Path:
  candidates = sorted(tree.ROOT.parent.glob(_BUILDIFIER))
  if not candidates:
    raise FileNotFoundError(f'{tree.ROOT.parent} has no {_BUILDIFIER}')
  return candidates[0]


def _ruff() -> pathlib.Path:
  """Returns the program of the pinned package.

  `python -m` may find another one. The wheel puts the program beside the
  modules or beside their folder.
  """
  modules = pathlib.Path(ruff.__file__).parent.parent
  for folder in (modules, modules.parent):
    if (path := folder / 'bin' / 'ruff').is_file():
      return path
  raise FileNotFoundError(f'{modules} has no bin/ruff')


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
    self.check([str(_ruff()), *command, '--no-cache', *paths])

  def test_ruff_format(self):
    self.ruff('format', '--diff')

  def test_ruff_check(self):
    self.ruff('check')

  def test_buildifier(self):
    program = str(_buildifier())
    there = subprocess.run([program, '--version'], capture_output=True)
    if there.returncode == 127:
      self.skipTest(there.stderr.decode().strip())
    patterns = ('BUILD', '*.bzl', 'MODULE.bazel', 'WORKSPACE')
    paths = [path for pattern in patterns for path in tree.files(pattern)]
    self.assertNotEmpty(paths)
    arguments = ['-mode=check', '-lint=warn', *map(str, paths)]
    self.check([program, *arguments])


if __name__ == '__main__':
  absltest.main()
