"""Tests that programs run in the layout of Bazel 8 with rules_python."""

import os
import pathlib
import shutil
import subprocess

from absl.testing import absltest

from tests.bazel8 import runfiles_layout

_RUNFILES = pathlib.Path(__file__).parents[3]
_INSTALL = 'deploy/install.sh'
_INSTALLED = 'saxml_ext/admin/admin_config'


class LayoutTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    if not (_RUNFILES / 'gptj_sax').is_dir():
      self.skipTest('This Bazel lays programs out itself.')
    self._root = pathlib.Path(self.create_tempdir().full_path)

  def _lay_out(self, program: str, out: pathlib.Path) -> pathlib.Path:
    out.mkdir(parents=True)
    return runfiles_layout.lay_out(_RUNFILES, program, out)

  def _run(self, *command: str) -> str:
    """Runs a command, which must succeed; returns its output."""
    launchers = ('RUNFILES_', 'PYTHON', 'TEST_', 'XML_')
    done = subprocess.run(
      command,
      env={k: v for k, v in os.environ.items() if not k.startswith(launchers)},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )
    self.assertIn(done.returncode, (0, 1), done.stdout)
    return done.stdout

  def test_house_finds_its_sources_and_buildifier(self):
    name = 'tests/house/lint_test'
    output = self._run(self._lay_out(name, self._root / 'x'), f'{name}.py')
    self.assertIn('Ran 3 tests', output)
    self.assertRegex(output, rf'\[   MODULE \] {name}\.py passed')

  def test_installed_program_needs_nothing_of_the_checkout(self):
    checkout, target = self._root / 'checkout', self._root / 'installed'
    (checkout / 'deploy').mkdir(parents=True)
    shutil.copy(_RUNFILES / 'gptj_sax' / _INSTALL, checkout / _INSTALL)
    # This simulates a built checkout.
    (checkout / 'bazelw').write_text('#!/bin/sh\n', 'utf-8')
    (checkout / 'bazelw').chmod(0o755)
    folder = checkout / 'bazel-bin' / os.path.dirname(_INSTALLED)
    name = self._lay_out(_INSTALLED, folder).name
    self._run(checkout / _INSTALL, target, name)
    shutil.rmtree(checkout)
    program = target / name / name
    (link,) = program.parent.rglob(f'_{name}.venv/bin/python3')
    self.assertTrue(link.is_symlink())
    self.assertFalse(os.path.isabs(os.readlink(link)))
    self.assertIn('--fs_root', self._run(program, '--helpfull'))

  def test_unknown_programs_are_not_installed(self):
    done = subprocess.run(
      [_RUNFILES / 'gptj_sax' / _INSTALL, self._root, 'saxutill'],
      capture_output=True,
      text=True,
      check=False,
    )
    self.assertEqual(done.returncode, 2)
    self.assertRegex(done.stderr, 'unknown: saxutill.\nAvailable: admin_config')
    self.assertEmpty(os.listdir(self._root))

  def test_repositories_have_their_names_under_modules(self):
    for name, expected in (
      ('gptj_sax', '_main'),
      ('pypi__numpy', 'rules_python++pip+saxml_pypi_311_numpy'),
      ('pypi_lint__ruff', 'rules_python++pip+pypi_lint_311_ruff'),
      ('buildifier', '+lint+buildifier'),
    ):
      self.assertEqual(runfiles_layout.repository(name), expected)


if __name__ == '__main__':
  absltest.main()
