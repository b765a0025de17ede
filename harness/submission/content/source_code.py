"""Sources of this repository, which a submission holds as its code."""

import io
import os
import pathlib
import tarfile

from harness.data import bundle
from harness.submission.content import git

# What computes and measures results; the rest of the repository tests it.
_FOLDERS = ('bundled', 'converters', 'harness', 'saxml_ext', 'serve')
_SUFFIXES = ('.py', '.proto', '.cc', '.h', '.bzl')
_DIRTY = '-dirty'


def files(commit: str) -> dict[str, bytes]:
  """Returns the sources by their paths in the repository.

  Args:
    commit: The commit that made the results. If the checkout does not have it,
      or if files were changed, the sources at hand are returned.
  """
  root = os.environ.get('BUILD_WORKSPACE_DIRECTORY', bundle.ROOT)
  if commit and not commit.endswith(_DIRTY):
    archive = git.run('-C', root, 'archive', '--format=tar', commit)
    if archive.returncode == 0:
      return _of_archive(archive.stdout)
  return {
    path.relative_to(root).as_posix(): path.read_bytes()
    for folder in _FOLDERS
    for path in sorted(pathlib.Path(root, folder).rglob('*'))
    if path.is_file()
    and _is_source(path.relative_to(root), path.stat().st_size)
  }


def _of_archive(content: bytes) -> dict[str, bytes]:
  found = {}
  with tarfile.open(fileobj=io.BytesIO(content)) as archive:
    for member in archive:
      file = archive.extractfile(member) if member.isfile() else None
      if file and _is_source(pathlib.PurePosixPath(member.name), member.size):
        found[member.name] = file.read()
  return found


def _is_source(path: pathlib.PurePath, size: int) -> bool:
  """Returns True for a source; checkers refuse files without content."""
  return (
    path.parts[0] in _FOLDERS
    and size > 0
    and (path.suffix in _SUFFIXES or path.name == 'BUILD')
    and not path.name.endswith('_test.py')
    and 'testing' not in path.parts
  )
