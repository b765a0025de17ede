"""Builds a layer of an image: programs, or the packages that they need.

A manifest names the files. Files below a site-packages directory belong to
packages, and the others to this repository.
"""

from collections.abc import Sequence
import os
import pathlib

from absl import flags

from deploy.images import layer
from saxml_ext.common import program

_LAYER = flags.DEFINE_string('layer', None, 'The layer to write, .tar.gz.')
_MANIFEST = flags.DEFINE_string(
  'manifest', None, 'Lines with a path in runfiles, a tab and a file.'
)
_PACKAGES = flags.DEFINE_bool(
  'packages', False, 'Include the packages instead of our own files.'
)
_PROGRAM = flags.DEFINE_multi_string(
  'program', [], 'A command, as NAME=MODULE.'
)

PACKAGES = 'opt/sax/packages'
OWN = 'opt/sax/lib'
_SITE = '/site-packages'
# No program reads these files of packages.
_WITHOUT = ('.a', '.c', '.cc', '.cpp', '.h', '.hpp', '.pyc', '.pyi', '.pyx')
_LAUNCHER = """#!/usr/bin/python3.11 -P
import runpy

runpy.run_module({module!r}, run_name='__main__', alter_sys=True)
"""


def _tree(inside: str, path: pathlib.Path) -> dict[str, layer.Entry]:
  """Returns a file, or all files of a directory."""
  if not path.is_dir():
    mode = 0o755 if os.access(path, os.X_OK) else 0o644
    return {inside: layer.File(path.resolve(), mode)}
  entries: dict[str, layer.Entry] = {}
  for directory, folders, names in os.walk(path, followlinks=True):
    folders[:] = sorted(set(folders) - {'__pycache__', 'tests'})
    for name in sorted(names):
      if not name.endswith(_WITHOUT):
        file = pathlib.Path(directory, name)
        below = file.relative_to(path)
        entries |= _tree(f'{inside}/{below}', file.resolve())
  return entries


def entries(
  manifest: str, packages: bool, programs: Sequence[str]
) -> dict[str, layer.Entry]:
  """Returns the files of the layer by their paths in the image."""
  whole: dict[str, layer.Entry] = {}
  for line in manifest.splitlines():
    runfile, _, path = line.partition('\t')
    external = runfile.startswith('../')
    if external and _SITE in runfile:
      if packages:
        below = runfile.partition(_SITE)[2]
        whole |= _tree(f'{PACKAGES}{below}', pathlib.Path(path))
    elif not external and not packages and pathlib.Path(path).is_file():
      whole |= _tree(f'{OWN}/{runfile}', pathlib.Path(path))
  whole |= layer.compiled(whole)
  for command in programs:
    name, _, module = command.partition('=')
    text = _LAUNCHER.format(module=module)
    whole[f'usr/bin/{name}'] = layer.File(text.encode(), 0o755)
  return whole


def main(argv: Sequence[str]) -> None:
  del argv
  manifest = pathlib.Path(_MANIFEST.value).read_text(encoding='utf-8')
  layer.write(
    pathlib.Path(_LAYER.value),
    entries(manifest, _PACKAGES.value, _PROGRAM.value),
  )


if __name__ == '__main__':
  flags.mark_flags_as_required(['layer', 'manifest'])
  program.run(main)
