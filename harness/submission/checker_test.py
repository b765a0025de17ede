import os
import pathlib
import shutil
import subprocess
import sys
import unittest
from unittest import mock

from absl.testing import absltest

from harness.submission import checker

# A replacement for the official program, which this repository does not
# contain.
_PROGRAM = """
import sys
NAME = {name!r}
VERSIONS = {{{versions}}}
tree = [a for a in sys.argv if a.startswith('--input=')][0][8:]
import os
if not os.path.isdir(tree):
  raise SystemExit('no tree')
print('[main.py:1 INFO] ' + NAME + ' ' + ' '.join(sys.argv[1:]))
bad = os.path.exists(os.path.join(tree, 'bad'))
if bad:
  print('[main.py:2 ERROR] bad is no file of a submission')
print('[main.py:3 INFO] SUMMARY: submission ' +
      ('has errors' if bad else 'looks OK'))
"""


def _git(folder: pathlib.Path, *arguments: str) -> None:
  identity = ('-c', 'user.name=A', '-c', 'user.email=a@example.org')
  subprocess.run(['git', *identity, *arguments], cwd=folder, check=True)


@unittest.skipUnless(shutil.which('git'), 'There is no git here.')
class CheckerTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.tree = self.root / 'tree'
    self.tree.mkdir()
    self.inference = self.root / 'inference'
    self.tools = self.inference / 'tools' / 'submission'
    self.tools.mkdir(parents=True)
    self.write('submission_checker.py', 'script', '"v4.0": 1')

  def write(self, path: str, name: str, versions: str) -> None:
    target = self.tools / path
    target.parent.mkdir(exist_ok=True)
    target.write_text(_PROGRAM.format(name=name, versions=versions), 'utf-8')

  def run_checker(
    self, round_name='v4.0', python=sys.executable, revision=None
  ):
    return checker.run(
      self.tree, self.inference, round_name, 'Example', python, revision
    )

  def test_accepts_and_refuses(self):
    verdict = self.run_checker()
    self.assertTrue(verdict.passed)
    self.assertEqual(verdict.complaints, [])
    self.assertIn(f'--input={self.tree} --version=v4.0', verdict.output)
    self.assertIn('--submitter=Example', verdict.output)
    (self.tree / 'bad').touch()
    verdict = self.run_checker()
    self.assertFalse(verdict.passed)
    self.assertEqual(verdict.summary, 'submission has errors')
    self.assertLen(verdict.complaints, 1)

  def test_launcher_settings_do_not_reach_the_checkers_python(self):
    # Newer checkers are a package in this folder.
    (self.tools / 'submission_checker.py').unlink()
    for name in ('main.py', 'constants.py'):
      self.write(f'submission_checker/{name}', 'package', '"v4.0": 1')
    (self.root / 'sitecustomize.py').write_text('raise SystemExit("ours")')
    ours = {'PYTHONPATH': str(self.root), 'PYTHONSAFEPATH': '1'}
    with mock.patch.dict(os.environ, ours):
      self.assertIn('package --input', self.run_checker().output)

  def test_the_rounds_own_checker_goes_first(self):
    _git(self.inference, 'init', '-q')
    _git(self.inference, 'add', '.')
    _git(self.inference, 'commit', '-qm', 'one')
    _git(self.inference, 'tag', 'v4.0')
    self.write('submission_checker.py', 'newer', '"v4.0": 1, "v4.1": 2')
    verdict = self.run_checker('v4.0')
    self.assertIn('script --input', verdict.output)
    self.assertEqual(verdict.version, 'tag v4.0')
    verdict = self.run_checker('v4.1')
    self.assertIn('newer --input', verdict.output)
    self.assertIn('as checked out', verdict.version)
    _git(self.inference, 'commit', '-qam', 'two')
    for tag in ('v4.0.2', 'v4.0.10', 'v4.0.11pre'):
      _git(self.inference, 'tag', tag)
    verdict = self.run_checker('v4.0')
    self.assertIn('newer --input', verdict.output)
    self.assertEqual(verdict.version, 'tag v4.0.10')

  def test_a_named_revision_goes_before_the_tag(self):
    _git(self.inference, 'init', '-q', '-b', 'master')
    _git(self.inference, 'add', '.')
    _git(self.inference, 'commit', '-qm', 'one')
    _git(self.inference, 'tag', 'v4.0')
    self.write('submission_checker.py', 'newer', '"v4.0": 1')
    _git(self.inference, 'commit', '-qam', 'two')
    verdict = self.run_checker('v4.0', revision='master')
    self.assertIn('newer --input', verdict.output)
    self.assertEqual(verdict.version, 'master')
    self.assertIn('script --', self.run_checker('v4.0', revision='v4.0').output)
    with self.assertRaisesRegex(
      checker.CheckerError, '=master does not support v4.1. Omit the flag'
    ):
      self.run_checker('v4.1', revision='master')
    with self.assertRaisesRegex(
      checker.CheckerError,
      '=old has no tools/submission in .* fetch origin old',
    ):
      self.run_checker('v4.0', revision='old')

  def test_a_part_of_the_set(self):
    def run(revision=None):
      return checker.run(
        *(self.tree, self.inference, 'v6.1', 'Example', sys.executable),
        *(revision, True),
      )

    (self.tools / 'submission_checker.py').unlink()
    self.write('submission_checker/constants.py', 'none', '"v6.1": 1')
    self.write('submission_checker/main.py', 'package', '')
    with self.assertRaisesRegex(
      checker.CheckerError,
      'as checked out has no --skip-dataset-size-check, but .* whole set, or',
    ):
      run()
    main = self.tools / 'submission_checker/main.py'
    option = '# "--skip-dataset-size-check"\n'
    main.write_text(option + main.read_text('utf-8'), 'utf-8')
    self.assertRegex(run().output, 'package .* --skip-dataset-size-check\n')

  def test_package_of_new_rounds(self):
    self.write('submission_checker/__init__.py', 'none', '')
    self.write('submission_checker/constants.py', 'none', '"v6.1": 1')
    self.write('submission_checker/main.py', 'package', '')
    (self.tools / 'submission_checker/__init__.py').write_text('')
    self.assertIn('package --input', self.run_checker('v6.1').output)
    self.assertFalse(any(self.tools.rglob('__pycache__')))

  def test_unknown_rounds_are_refused(self):
    with self.assertRaisesRegex(
      checker.CheckerError, 'neither a tag v5.0 nor a checker .* "git clone'
    ):
      self.run_checker('v5.0')
    self.inference = self.root / 'nowhere'
    with self.assertRaisesRegex(
      checker.CheckerError, 'is not a directory. Run'
    ):
      self.run_checker()

  def test_programs_that_do_not_run(self):
    with self.assertRaisesRegex(checker.CheckerError, 'cannot be run: No such'):
      self.run_checker(python=os.path.join(self.root, 'no_python'))
    script = self.tools / 'submission_checker.py'
    script.write_text(
      'VERSIONS = {"v4.0": 1}\nimport no_such_module\n', 'utf-8'
    )
    with self.assertRaisesRegex(
      checker.CheckerError,
      'without a verdict. .*no_such_module.*-m pip install pandas',
    ):
      self.run_checker()


if __name__ == '__main__':
  absltest.main()
