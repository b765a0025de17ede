"""Finds the directory for everything that need not be made or fetched twice."""

import os

from saxml_ext.common import user_path

VARIABLE = 'GPTJ_SAX_CACHE'


def default() -> str:
  """Returns the absolute path of the cache directory if no flag names one.

  It is $GPTJ_SAX_CACHE, else gptj_sax in $XDG_CACHE_HOME, else
  ~/.cache/gptj_sax. Nothing is created; see `create`.
  """
  named = os.environ.get(VARIABLE)
  if named:
    return os.path.normpath(user_path.resolve(named))
  base = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  return os.path.join(base, 'gptj_sax')


def create(path: str) -> str:
  """Creates a directory in the cache, with its parents, and returns `path`.

  Raises:
    OSError: The directory cannot be created or written.
  """
  try:
    os.makedirs(path, exist_ok=True)
    writable = os.access(path, os.W_OK | os.X_OK)
    reason = 'Permission denied or read-only file system'
  except OSError as error:
    writable, reason = False, error.strerror or str(error)
  if not writable:
    raise OSError(
      f'The cache directory {path} cannot be written ({reason}). Set'
      f' ${VARIABLE} to a directory that you can write to.'
    )
  return path
