"""Restricts the directories from which a model server loads files.

A publisher of a model names a checkpoint and a vocabulary. Without roots, a
server would read any file that its own user may read. With roots, it reads only
files below one of them, after resolving symbolic links.

The check comes before the read. So roots must be directories that only trusted
users can write.
"""

from collections.abc import Sequence
import os
import re

from saxml_ext.common import errors
from saxml_ext.common import storage

_URL_PATH = re.compile(r'[A-Za-z0-9/_.=+:-]+')

_roots: tuple[str, ...] = ()


def configure(roots: Sequence[str]) -> None:
  """Sets the roots of this process.

  Args:
    roots: The directories and URLs. Without any, the server may read any file.

  Raises:
    InvalidArgument: A root is neither an absolute path nor a URL.
  """
  global _roots
  for root in roots:
    if not (os.path.isabs(root) or storage.is_url(root)):
      raise errors.InvalidArgument(
        f'the root {root!r} must be an absolute path or a URL'
      )
  _roots = tuple(root.rstrip('/') or '/' for root in roots)


def allows(path: str) -> bool:
  """Returns True if the target of a path, after all links, is below a root."""
  if not _roots:
    return True
  if storage.is_url(path):
    return _allows_url(path)
  try:
    real = os.path.realpath(path)
  except (ValueError, OSError):  # The path has a NUL, or a link to itself.
    return False
  return any(
    os.path.commonpath((real, os.path.realpath(root))) == os.path.realpath(root)
    for root in _roots
    if not storage.is_url(root)
  )


def check(path: str, what: str) -> None:
  """Checks a file or a directory, and all links in it, before it is read.

  Args:
    path: The path: absolute, relative or a URL. It need not exist.
    what: The name of the path in messages.

  Raises:
    PermissionDenied: The path is outside of all roots, or a link in it leads
      outside.
  """
  if not allows(path):
    raise _denied(path, what)
  if not _roots or storage.is_url(path):
    return
  for parent, directories, names in os.walk(path):
    for name in (*directories, *names):
      entry = os.path.join(parent, name)
      if os.path.islink(entry) and not allows(entry):
        raise _denied(entry, what)


def _allows_url(path: str) -> bool:
  # The bucket, or a server on the way to it, could read other characters
  # differently.
  scheme, _, rest = path.partition('://')
  if not _URL_PATH.fullmatch(rest) or {'.', '..'} & set(rest.split('/')):
    return False
  return any(
    f'{scheme}://{rest}/'.startswith(f'{root}/')
    for root in _roots
    if storage.is_url(root)
  )


def _denied(path: str, what: str) -> errors.PermissionDenied:
  shown = path if len(path) <= 200 else f'{path[:200]}...'
  return errors.PermissionDenied(
    f'{what} {shown!r} is outside of the directories from which this server'
    f' may load ({", ".join(_roots)}). Move it into one of them, or start the'
    ' server with another --load_roots'
  )
