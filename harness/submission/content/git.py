"""Runs git, which submissions take tagged files from and are committed with."""

import os
import shutil
import subprocess
from typing import Any

from harness import errors


def run(
  *arguments: str | os.PathLike[str], **options: Any
) -> subprocess.CompletedProcess[Any]:
  """Returns a git command that has ended, successful or not, with its output.

  Args:
    *arguments: The arguments of git.
    **options: Options of subprocess.run, such as `encoding`.

  Raises:
    errors.HarnessError: There is no git.
  """
  if shutil.which('git') is None:
    raise errors.HarnessError(
      f'Cannot run git {" ".join(map(str, arguments))}: git is not on the PATH.'
      ' Install it (on Debian: apt-get install git) and run this again.'
    )
  return subprocess.run(
    ['git', *arguments], capture_output=True, check=False, **options
  )
