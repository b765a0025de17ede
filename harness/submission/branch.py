"""A branch of the user's clone that holds a submission, ready to be pushed.

The branch is made beside the files that are checked out: repositories of results
are large, and whatever the user works on in the clone stays as it is. Nothing is
pushed.
"""

import os
import pathlib
import tempfile

from harness import errors
from harness.submission.content import git


class BranchError(errors.HarnessError):
  """The branch was not made."""


def problem(repository: pathlib.Path, name: str) -> str | None:
  """Why a branch cannot be made; None if nothing speaks against it."""
  if not repository.is_dir():
    return f'--repo={repository} is no directory; give a clone on this machine'
  if _try(repository, 'rev-parse', '--git-dir') is None:
    return f'--repo={repository} is no git repository; give a clone'
  if _try(repository, 'check-ref-format', '--branch', name) is None:
    return f'--git_branch={name} is no name of a branch'
  if _try(repository, 'rev-parse', '--verify', f'refs/heads/{name}'):
    return (
      f'{repository} has a branch {name} already; give another --git_branch, or'
      f' remove it: git -C {repository} branch -D {name}'
    )
  if _try(repository, 'var', 'GIT_COMMITTER_IDENT') is None:
    return (
      f'git does not know who commits in {repository}: set user.name and'
      ' user.email by git config'
    )
  return None


def make(
  repository: pathlib.Path, name: str, tree: pathlib.Path, message: str
) -> str:
  """Commits a tree's files on a new branch that begins at HEAD.

  Files of HEAD that the tree does not name stay.

  Returns:
    The command that pushes it.

  Raises:
    BranchError: git refused.
  """
  parent = _try(repository, 'rev-parse', '--verify', 'HEAD')
  with tempfile.TemporaryDirectory(prefix='submission_') as scratch:
    index = {'GIT_INDEX_FILE': os.path.join(scratch, 'index')}
    if parent:
      _run(repository, index, 'read-tree', parent)
    # What a .gitignore of the user names belongs to a submission all the same.
    arguments = ('add', '--force', '--ignore-removal', '.')
    _run(repository, index | {'GIT_WORK_TREE': str(tree)}, *arguments, at=tree)
    stored = _run(repository, index, 'write-tree')
  parents = ('-p', parent) if parent else ()
  commit = _run(repository, {}, 'commit-tree', stored, *parents, '-m', message)
  _run(repository, {}, 'branch', name, commit)
  remotes = (_try(repository, 'remote') or '').split()
  remote = 'origin' if 'origin' in remotes or not remotes else remotes[0]
  return f'git -C {repository} push {remote} {name}'


def _run(
  repository: pathlib.Path,
  env: dict[str, str],
  *arguments: str,
  at: pathlib.Path | None = None,
) -> str:
  git_dir = _try(repository, 'rev-parse', '--absolute-git-dir')
  done = git.run(
    f'--git-dir={git_dir}',
    *arguments,
    cwd=at or repository,
    env=dict(os.environ) | env,
    encoding='utf-8',
  )
  if done.returncode:
    raise BranchError(
      f'git {arguments[0]} failed in {repository}: {done.stderr.strip()}'
    )
  return done.stdout.strip()


def _try(repository: pathlib.Path, *arguments: str) -> str | None:
  """Output of a git command; None if it fails."""
  done = git.run('-C', repository, *arguments, encoding='utf-8')
  return None if done.returncode else done.stdout.strip()
