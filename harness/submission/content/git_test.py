import os
import shutil
import unittest
from unittest import mock

from absl.testing import absltest

from harness import errors
from harness.submission.content import git


class GitTest(absltest.TestCase):
  def test_absence_is_reported_with_the_remedy(self):
    empty = self.create_tempdir().full_path
    with mock.patch.dict(os.environ, PATH=empty):
      with self.assertRaisesRegex(
        errors.HarnessError,
        'Cannot run git show v4.0: git is not on the PATH. Install it',
      ):
        git.run('show', 'v4.0')

  @unittest.skipUnless(shutil.which('git'), 'There is no git here.')
  def test_returns_the_output_and_the_exit_code(self):
    done = git.run('--version', encoding='utf-8')
    self.assertEqual(done.returncode, 0)
    self.assertStartsWith(done.stdout, 'git version')
    self.assertNotEqual(git.run('no-such-command').returncode, 0)


if __name__ == '__main__':
  absltest.main()
