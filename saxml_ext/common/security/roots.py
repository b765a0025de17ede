"""Directories outside of which a model server loads nothing.

Whoever may publish a model names a checkpoint and a vocabulary, and a server
would read any file that its own user may. With roots set, only what lies below
one of them is read, wherever symbolic links lead.

The check comes before the reading: roots are for directories that only trusted
hands write to, as they should be anyway.
"""

from collections.abc import Sequence
import os
import re

from saxml_ext.common import errors
from saxml_ext.common import storage

_URL_PATH = re.compile(r'[A-Za-z0-9/_.=+:-]+')

_roots: tuple[str, ...] = ()


def configure(roots: Sequence[str]) -> None:
  """Sets the roots of this process: directories and URLs; none: anything.

  Raises:
    InvalidArgument: one is no absolute path and no URL.
  """
  global _roots
  for root in roots:
    if not (os.path.isabs(root) or storage.is_url(root)):
      raise errors.InvalidArgument(
        f'the root {root!r} is neither an absolute path nor a URL: give one'
      )
  _roots = tuple(root.rstrip('/') or '/' for root in roots)


def allows(path: str) -> bool:
  """Whether a file or directory, resolved, is below a root."""
  if not _roots:
    return True
  if storage.is_url(path):
    return _allows_url(path)
  try:
    real = os.path.realpath(path)
  except (ValueError, OSError):  # NUL; a link to itself.
    return False
  return any(
    os.path.commonpath((real, os.path.realpath(root))) == os.path.realpath(root)
    for root in _roots
    if not storage.is_url(root)
  )


def check(path: str, what: str) -> None:
  """Checks a file or a directory, with all links in it, before it is read.

  Args:
    path: absolute, relative or a URL; it need not exist.
    what: names it in the message.

  Raises:
    PermissionDenied: it is outside of all roots, or a link in it leads there.
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
  # No name that the bucket or anything on the way to it might read otherwise.
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
    f'{what} {shown!r} is outside of the directories that this server may load'
    f' from ({", ".join(_roots)}): put it into one of them, or start the server'
    ' with another --load_roots'
  )
