"""SHA-256 of files and directories that a run has read."""

import hashlib
import os


def file_sha256(path: str) -> str:
  """The SHA-256 of a file, as sha256sum prints it.

  Raises:
    OSError: it cannot be read.
  """
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def tree_sha256(directory: str) -> str:
  """The SHA-256 of a directory: of its files' names and contents.

  It is that of the text that `sha256sum` prints of all files, with their paths
  from the directory, sorted by path in the order of bytes. Empty directories,
  times and permissions do not count.

  Raises:
    OSError: something cannot be read.
    ValueError: there is no file in it.
  """
  paths = sorted(
    os.path.relpath(os.path.join(parent, name), directory)
    for parent, _, names in os.walk(directory, onerror=_raise)
    for name in names
  )
  if not paths:
    raise ValueError(f'{directory} holds no file')
  digest = hashlib.sha256()
  for path in sorted(paths, key=os.fsencode):
    line = f'{file_sha256(os.path.join(directory, path))}  '
    digest.update(line.encode() + os.fsencode(path) + b'\n')
  return digest.hexdigest()


def _raise(error: OSError) -> None:
  raise error
