"""A submission's tree as one compressed file."""

import pathlib
import tarfile

from saxml_ext.common import files


def default_path(output: pathlib.Path) -> pathlib.Path:
  """Where the archive of a tree goes if the user does not say."""
  return output.with_name(f'{output.name}.tar.gz')


def write(tree: pathlib.Path, path: pathlib.Path) -> None:
  """Writes the files of a tree, in order of their names, whole or not at all.

  Owners are left out: who unpacks it becomes the owner.

  Raises:
    OSError: it cannot be written.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  with (
    files.replacing(path, 'wb') as whole,
    tarfile.open(path.name, 'w:gz', whole) as archive,
  ):
    for file in sorted(each for each in tree.rglob('*') if each.is_file()):
      archive.add(file, str(file.relative_to(tree)), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
  member.uid = member.gid = 0
  member.uname = member.gname = ''
  return member
