import os
import pathlib
import shutil
import subprocess
import unittest
from unittest import mock

from absl.testing import absltest

from harness import errors
from harness.submission import git

_IDENTITY = {
  'GIT_AUTHOR_NAME': 'A',
  'GIT_AUTHOR_EMAIL': 'a@example.org',
  'GIT_COMMITTER_NAME': 'A',
  'GIT_COMMITTER_EMAIL': 'a@example.org',
}


@unittest.skipUnless(shutil.which('git'), 'There is no git here.')
class BranchTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.dict(os.environ, _IDENTITY))
    root = pathlib.Path(self.create_tempdir().full_path)
    self.repo = root / 'repo'
    self.tree = root / 'tree'
    (self.tree / 'open' / 'Example').mkdir(parents=True)
    (self.tree / 'open' / 'Example' / 'new.txt').write_text('new', 'utf-8')
    subprocess.run(['git', 'init', '-q', self.repo], check=True)

  def git(self, *arguments: str) -> str:
    return subprocess.run(
      ['git', *arguments],
      cwd=self.repo,
      check=True,
      capture_output=True,
      encoding='utf-8',
    ).stdout.strip()

  def commit(self) -> None:
    (self.repo / 'old.txt').write_text('old', 'utf-8')
    (self.repo / '.gitignore').write_text('*.txt\n', 'utf-8')
    self.git('add', '--force', '.')
    self.git('commit', '-qm', 'first')

  def test_adds_the_tree_and_keeps_the_rest(self):
    self.commit()
    (self.repo / 'old.txt').write_text('at work', 'utf-8')
    self.git('remote', 'add', 'fork', 'https://example.org/results.git')
    before = self.git('status', '--porcelain')
    self.assertIsNone(git.branch_problem(self.repo, 'mine'))
    push = git.make_branch(self.repo, 'mine', self.tree, 'My results')
    self.assertEqual(push, f'git -C {self.repo} push fork mine')
    names = self.git('ls-tree', '-r', '--name-only', 'mine').split()
    self.assertEqual(names, ['.gitignore', 'old.txt', 'open/Example/new.txt'])
    self.assertEqual(self.git('show', 'mine:old.txt'), 'old')
    self.assertEqual(self.git('log', '-1', '--format=%s', 'mine'), 'My results')
    self.assertEqual(
      self.git('rev-parse', 'mine^'), self.git('rev-parse', 'HEAD')
    )
    # The user's checked-out files are unchanged.
    self.assertEqual(self.git('status', '--porcelain'), before)
    self.assertFalse((self.repo / 'open').exists())

  def test_repository_without_a_commit(self):
    push = git.make_branch(self.repo, 'mine', self.tree, 'First')
    self.assertEqual(push, f'git -C {self.repo} push origin mine')
    self.assertEqual(
      self.git('ls-tree', '-r', '--name-only', 'mine'), 'open/Example/new.txt'
    )

  def test_unusable_repositories_are_refused(self):
    self.commit()
    self.git('branch', 'taken')
    for repo, name, pattern in (
      (self.repo, 'taken', 'already has a branch taken. .* branch -D taken'),
      (self.repo, 'a..b', 'is not a valid branch name'),
      (self.repo / 'nowhere', 'x', 'is not a directory'),
      (self.tree, 'x', 'is not a git repository'),
    ):
      self.assertRegex(git.branch_problem(repo, name), pattern)

  def test_errors_of_git_are_shown(self):
    self.commit()
    git.make_branch(self.repo, 'mine', self.tree, 'one')
    with self.assertRaisesRegex(git.BranchError, 'git branch failed in .*mine'):
      git.make_branch(self.repo, 'mine', self.tree, 'two')


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
