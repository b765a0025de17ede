"""Writes a submission's tree or its archive atomically."""

from collections.abc import Mapping
import pathlib
import shutil
import tarfile

from harness.rules import requirements
from harness.submission import plan
from saxml_ext.common import files as files_lib

# The checkers reject larger files.
_MAX_BYTES = 50 * 1024 * 1024


def problems(files: Mapping[str, plan.Content]) -> list[str]:
  """Returns the problems of files that every checker rejects."""
  texts = []
  for path, content in files.items():
    if isinstance(content, bytes):
      size = len(content)
    elif content.is_file():
      size = content.stat().st_size
    else:
      texts.append(f'{content} is missing. It becomes {path} in the tree.')
      continue
    if size > _MAX_BYTES:
      texts.append(
        f'{content if isinstance(content, pathlib.Path) else path} has {size}'
        f' bytes. Files of submissions may have up to {_MAX_BYTES} bytes.'
      )
    if not size:
      texts.append(f'{path} would be empty.')
  return texts


def may_write(output: pathlib.Path, clean: bool) -> str | None:
  """Returns the reason why a tree cannot be written, or None if it can."""
  if output.exists() and not output.is_dir():
    return f'{output} is not a directory. Pass another --output.'
  if not output.exists() or not any(output.iterdir()):
    return None
  if not clean:
    return (
      f'{output} is not empty. Pass another --output, or --clean to remove the'
      ' existing tree.'
    )
  foreign = sorted(
    path.name
    for path in output.iterdir()
    if path.name not in requirements.DIVISIONS
  )
  if foreign:
    return (
      f'{output} has {", ".join(foreign[:5])}, which no submission contains.'
      ' --clean removes only submissions. Pass another --output.'
    )
  return None


def write(files: Mapping[str, plan.Content], output: pathlib.Path) -> None:
  """Writes the files, and replaces the previous content of `output`.

  Raises:
    OSError: A file cannot be written. `output` is unchanged.
  """
  output.parent.mkdir(parents=True, exist_ok=True)
  with files_lib.new_directory(output, replace=True) as unfinished:
    for path, content in files.items():
      target = pathlib.Path(unfinished, path)
      target.parent.mkdir(parents=True, exist_ok=True)
      if isinstance(content, bytes):
        target.write_bytes(content)
      else:
        shutil.copyfile(content, target)


def default_archive(output: pathlib.Path) -> pathlib.Path:
  """Returns the default path of the archive of a tree."""
  return output.with_name(f'{output.name}.tar.gz')


def archive(tree: pathlib.Path, path: pathlib.Path) -> None:
  """Writes the files of a tree to an archive atomically, sorted by name.

  The archive records no owners, so extracted files belong to the current user.

  Raises:
    OSError: The archive cannot be written.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  with (
    files_lib.replacing(path, 'wb') as whole,
    tarfile.open(path.name, 'w:gz', whole) as tar,
  ):
    for file in sorted(p for p in tree.rglob('*') if p.is_file()):
      tar.add(file, str(file.relative_to(tree)), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
  member.uid = member.gid = 0
  member.uname = member.gname = ''
  return member
