"""Runs git: reads tagged files, and creates the branch of a submission.

Repositories of results are large, and users may be working in the clone. The
branch is therefore created without changing the checked-out files. Nothing is
pushed.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

from harness import errors


def run(
  *arguments: str | os.PathLike[str], **options: Any
) -> subprocess.CompletedProcess[Any]:
  """Runs git and returns the finished process, successful or not.

  Args:
    *arguments: The arguments of git.
    **options: The options of subprocess.run, such as `encoding`.

  Raises:
    errors.HarnessError: git is not installed.
  """
  if shutil.which('git') is None:
    raise errors.HarnessError(
      f'Cannot run git {" ".join(map(str, arguments))}: git is not on the PATH.'
      ' Install it (on Debian: apt-get install git) and run this again.'
    )
  return subprocess.run(
    ['git', *arguments], capture_output=True, check=False, **options
  )


class BranchError(errors.HarnessError):
  """The branch could not be created."""


def branch_problem(repository: pathlib.Path, name: str) -> str | None:
  """Returns the reason why a branch cannot be created, or None if it can."""
  if not repository.is_dir():
    return (
      f'--repo={repository} is not a directory. Pass a clone on this machine.'
    )
  if _try(repository, 'rev-parse', '--git-dir') is None:
    return f'--repo={repository} is not a git repository. Pass a clone.'
  if _try(repository, 'check-ref-format', '--branch', name) is None:
    return f'--git_branch={name} is not a valid branch name.'
  if _try(repository, 'rev-parse', '--verify', f'refs/heads/{name}'):
    return (
      f'{repository} already has a branch {name}. Pass another --git_branch,'
      f' or remove the branch: git -C {repository} branch -D {name}'
    )
  if _try(repository, 'var', 'GIT_COMMITTER_IDENT') is None:
    return (
      f'git has no identity for commits in {repository}. Set user.name and'
      ' user.email with git config.'
    )
  return None


def make_branch(
  repository: pathlib.Path, name: str, tree: pathlib.Path, message: str
) -> str:
  """Commits a tree's files on a new branch that starts at HEAD.

  Files of HEAD that are not in the tree stay.

  Returns:
    The command that pushes the branch.

  Raises:
    BranchError: A git command failed.
  """
  parent = _try(repository, 'rev-parse', '--verify', 'HEAD')
  with tempfile.TemporaryDirectory(prefix='submission_') as scratch:
    index = {'GIT_INDEX_FILE': os.path.join(scratch, 'index')}
    if parent:
      _run(repository, index, 'read-tree', parent)
    # Files that match the user's .gitignore belong to the submission too.
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
  done = run(
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
  """Returns the output of a git command, or None if it fails."""
  done = run('-C', repository, *arguments, encoding='utf-8')
  return None if done.returncode else done.stdout.strip()
