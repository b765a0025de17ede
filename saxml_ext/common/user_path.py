"""Resolves paths that a user typed, and finds the cache directory.

`bazel run` starts a program in its runfiles, and passes the user's directory in
an environment variable. Relative paths start from that directory.
"""

import os
from typing import overload

from saxml_ext.common import files

_TYPED_IN = 'BUILD_WORKING_DIRECTORY'
# This variable names the directory for downloads and other reusable files.
CACHE = 'GPTJ_SAX_CACHE'


@overload
def resolve(path: str) -> str: ...


@overload
def resolve(path: None) -> None: ...


def resolve(path: str | None) -> str | None:
  """Returns a path made absolute from the user's directory, `~` expanded.

  URLs, such as gs://bucket/dir, None and '' are returned unchanged.
  """
  if not path or '://' in path:
    return path
  start = os.environ.get(_TYPED_IN) or os.getcwd()
  return os.path.join(start, os.path.expanduser(path))


def default_cache() -> str:
  """Returns the absolute path of the default cache directory.

  It is $GPTJ_SAX_CACHE, or else gptj_sax in $XDG_CACHE_HOME, or else
  ~/.cache/gptj_sax. Nothing is created; see `create_cache`.
  """
  named = os.environ.get(CACHE)
  if named:
    return os.path.normpath(resolve(named))
  base = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  return os.path.join(base, 'gptj_sax')


def create_cache(path: str) -> str:
  """Creates a directory in the cache, with its parents, and returns `path`.

  Raises:
    OSError: The directory cannot be created or written, or another user may
      write it.
  """
  try:
    os.makedirs(path, mode=0o755, exist_ok=True)
    files.check_private(path)
    writable = os.access(path, os.W_OK | os.X_OK)
    reason = 'Permission denied or read-only file system'
  except OSError as error:
    writable, reason = False, error.strerror or str(error)
  if not writable:
    raise OSError(
      f'The cache directory {path} cannot be written ({reason}). Set'
      f' ${CACHE} to a directory that you can write to.'
    )
  return path
