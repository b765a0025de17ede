"""Arranges a Bazel 4 program in the layout of Bazel 8 with rules_python 2.3.2.

The names of repositories, the virtual environment of each program and its three
launchers follow rules_python (python/private/py_executable.bzl and the
templates next to it). There are two differences: packages are linked as folders
and not file by file, and the interpreter is this machine's.
"""

from collections.abc import Iterator
import os
import pathlib
import re
import sys

_STUB = '# This script must retain compatibility with a wide variety of Python'
_IMPORTS = re.compile(r"^  python_imports = '(.*)'$", re.M)
_MAIN = re.compile(r"^  (?:rel_path|main_rel_path) = .*?'([^']+)'", re.M)
_WORKSPACE = 'gptj_sax'
_VERSION = f'{sys.version_info.major}.{sys.version_info.minor}'
_INTERPRETER = f'rules_python++python+python_{_VERSION.replace(".", "_")}'
_NOT_COPIED = (
  '__pycache__',
  'dist-packages',
  'idlelib',
  'site-packages',
  'test',
)

# The launcher finds its runfiles and starts the Python of the environment.
_STAGE_1 = """#!/usr/bin/env bash
set -e
second={second}
self=$0
[[ $self == /* ]] || self=$PWD/$self
if [[ -n ${{RUNFILES_DIR:-}} && -e $RUNFILES_DIR/$second ]]; then
  root=$RUNFILES_DIR
elif [[ -d $self.runfiles ]]; then
  root=$self.runfiles
else
  root=${{self%.runfiles/*}}.runfiles
fi
export RUNFILES_DIR=$root
export PYTHONSAFEPATH=${{PYTHONSAFEPATH-1}}
exec "$root/{venv}/bin/python3" "$root/$second" "$@"
"""
# This file runs in that Python and starts the program's main file. It is not in
# our format, so a check of our own files must skip it.
_STAGE_2 = """import os
import runpy
import sys

root = __file__
for _ in range({depth}):
    root = os.path.dirname(root)
os.environ['RUNFILES_DIR'] = root
main = os.path.join(root, {main!r})
sys.argv[0] = main
runpy.run_path(main, run_name='__main__')
"""
# This file runs when Python starts, and adds the program's imports to the path.
_SITE = """import os
import sys

root = __file__
for _ in range({depth}):
  root = os.path.dirname(root)
for path in {imports!r}:
  path = os.path.join(root, path)
  if path not in sys.path:
    sys.path.append(path)
if sys.executable == sys._base_executable:
  sys._base_executable = os.path.realpath(sys.executable)
"""


def repository(name: str) -> str:
  """Returns the directory name of a repository when modules are used."""
  if name == _WORKSPACE:
    return '_main'
  if name == 'buildifier':
    return '+lint+buildifier'
  hub, _, package = name.partition('__')
  if package:
    hub = 'saxml_pypi' if hub == 'pypi' else hub
    return f'rules_python++pip+{hub}_{_VERSION.replace(".", "")}_{package}'
  return f'+{name}'


def lay_out(
  runfiles: pathlib.Path, program: str, out: pathlib.Path
) -> pathlib.Path:
  """Arranges a program and all programs among its runfiles.

  Args:
    runfiles: The runfiles of Bazel 4, `x.runfiles`.
    program: The program's path in the repository, without suffix.
    out: The output directory, which exists and is empty.

  Returns:
    The program's launcher, `out/NAME`. Its runfiles are next to it.
  """
  root = out / f'{os.path.basename(program)}.runfiles'
  _link_interpreter(root / _INTERPRETER)
  for folder in runfiles.iterdir():
    if folder.is_dir():
      _link(folder, root / repository(folder.name))
  for path in _launchers(root / '_main'):
    text = path.read_text('utf-8')
    path.unlink()
    _write_program(root, path, text)
  launcher = root / '_main' / program
  top = out / launcher.name
  top.write_bytes(launcher.read_bytes())
  top.chmod(0o755)
  return top


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
  """Links the files of a runfiles folder; a linked folder becomes one link."""
  target.mkdir(parents=True)
  for entry in source.iterdir():
    if entry.name == 'external':
      continue  # Bazel 4 also puts other repositories here.
    if entry.is_dir() and not entry.is_symlink():
      _link(entry, target / entry.name)
    else:
      (target / entry.name).symlink_to(entry.resolve())


def _link_interpreter(repo: pathlib.Path) -> None:
  library = pathlib.Path(os.__file__).parent
  (repo / 'bin').mkdir(parents=True)
  executable = pathlib.Path(sys.executable).resolve()
  (repo / f'bin/python{_VERSION}').symlink_to(executable)
  modules = repo / f'lib/python{_VERSION}'
  modules.mkdir(parents=True)
  for entry in library.iterdir():
    if entry.name not in _NOT_COPIED:
      (modules / entry.name).symlink_to(entry)


def _launchers(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  for path in sorted(folder.rglob('*')):
    if path.suffix or not path.is_file() or not os.access(path, os.X_OK):
      continue
    with path.open('rb') as file:
      if _STUB.encode() in file.read(500):
        yield path


def _write_program(root: pathlib.Path, launcher: pathlib.Path, stub: str):
  """Replaces a launcher of Bazel 4, whose text is `stub`."""
  main = _runfile(_MAIN.search(stub)[1])
  imports = [_runfile(item) for item in _IMPORTS.search(stub)[1].split(':')]
  folder = launcher.parent
  venv = folder / f'_{launcher.name}.venv'
  second = folder / f'_{launcher.name}_stage2_bootstrap.py'
  packages = venv / f'lib/python{_VERSION}/site-packages'
  packages.mkdir(parents=True)
  (venv / 'pyvenv.cfg').touch()
  (venv / 'bin').mkdir()
  python = root / _INTERPRETER / f'bin/python{_VERSION}'
  (venv / 'bin/python3').symlink_to(os.path.relpath(python, venv / 'bin'))
  (packages / 'bazel.pth').write_text('import _bazel_site_init\n', 'utf-8')
  site = packages / '_bazel_site_init.py'
  for path, text in (
    (site, _SITE.format(depth=_depth(root, site), imports=[*imports, '_main'])),
    (second, _STAGE_2.format(depth=_depth(root, second), main=main)),
    (
      launcher,
      _STAGE_1.format(
        second=second.relative_to(root), venv=venv.relative_to(root)
      ),
    ),
  ):
    path.write_text(text, 'utf-8')
  launcher.chmod(0o755)


def _runfile(path: str) -> str:
  name, slash, rest = path.partition('/')
  return repository(name) + slash + rest


def _depth(root: pathlib.Path, path: pathlib.Path) -> int:
  return len(path.relative_to(root).parts)
