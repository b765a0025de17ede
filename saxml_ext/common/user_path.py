"""Paths that a user typed.

`bazel run` starts a program in its runfiles and tells in an environment
variable where the user is. A relative path means a place there.
"""

import os
from typing import overload

_TYPED_IN = 'BUILD_WORKING_DIRECTORY'


@overload
def resolve(path: str) -> str: ...


@overload
def resolve(path: None) -> None: ...


def resolve(path: str | None) -> str | None:
  """`path` made absolute from the user's directory, `~` expanded.

  URLs, such as gs://bucket/dir, None and '' stay as they are.
  """
  if not path or '://' in path:
    return path
  start = os.environ.get(_TYPED_IN) or os.getcwd()
  return os.path.join(start, os.path.expanduser(path))
