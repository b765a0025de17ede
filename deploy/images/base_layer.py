"""Builds the lowest layer of every image: Python and its dependencies.

The files come from the machine that builds: Python 3.11, C and C++ libraries, a
shell for debugging, and certificate authorities. Python is the system's Python
3.11 or, without one, the interpreter of this program. /opt/sax/base.txt in the
image lists the Debian packages of the files with their versions. Equal versions
give equal bytes of the layer.
"""

from collections.abc import Iterable, Mapping, Sequence
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from absl import app
from absl import flags

from deploy.images import layer
from saxml_ext.common import program

_LAYER = flags.DEFINE_string('layer', None, 'The layer to write, .tar.gz.')

# No server needs these parts of the standard library: its tests, graphics,
# installers, and terminal modules, which would bring more libraries.
_WITHOUT = frozenset(
  {
    '__pycache__',
    'curses',
    'dist-packages',
    'ensurepip',
    'idlelib',
    'lib2to3',
    'pydoc_data',
    'site-packages',
    'test',
    'tests',
    'tkinter',
    'turtledemo',
  }
)
_WITHOUT_MODULES = re.compile(
  r'(_curses|_curses_panel|_tkinter|readline|_test\w*|_xx\w*|xx\w*)\.'
)
# Compiled Python packages expect these libraries on any Linux (PEP 600), or
# host names need them.
_LIBRARIES = (
  'libc.so.6',
  'libdl.so.2',
  'libgcc_s.so.1',
  'libm.so.6',
  'libnss_dns.so.2',
  'libnss_files.so.2',
  'libpthread.so.0',
  'libresolv.so.2',
  'librt.so.1',
  'libstdc++.so.6',
  'libutil.so.1',
  'libz.so.1',
)
_CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt'
_USERS = (
  'root:x:0:0:root:/root:/bin/sh\n'
  'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n'
  'nonroot:x:65532:65532:nonroot:/home/nonroot:/bin/sh\n'
)
_GROUPS = 'root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n'
_STANDARD_LIBRARY = 'usr/lib/python3.11'
_ASK = (
  'import json, sysconfig; print(json.dumps([sysconfig.get_path("stdlib"),'
  ' sysconfig.get_path("platstdlib")]))'
)


def _output(*command: str, check: bool = True) -> str:
  """Returns the output of a command."""
  return subprocess.run(
    command, capture_output=True, text=True, check=check
  ).stdout


def _python() -> tuple[pathlib.Path, list[pathlib.Path]]:
  """Returns the interpreter and the directories of its standard library."""
  executable = shutil.which('python3.11') or sys.executable
  output = json.loads(_output(executable, '-I', '-c', _ASK))
  paths = dict.fromkeys(map(pathlib.Path, output))
  return pathlib.Path(executable).resolve(), list(paths)


def _standard_library(root: pathlib.Path) -> dict[str, layer.Entry]:
  entries: dict[str, layer.Entry] = {}
  for directory, folders, names in os.walk(root):
    folders[:] = sorted(
      name
      for name in set(folders) - _WITHOUT
      if not name.startswith('config-')  # It is for building extensions.
    )
    for name in sorted(names):
      if _WITHOUT_MODULES.match(name) or name.endswith(('.a', '.pyc')):
        continue
      path = pathlib.Path(directory, name)
      if not path.exists():
        continue  # The link's package is missing.
      inside = f'{_STANDARD_LIBRARY}/{path.relative_to(root)}'
      entries[inside] = layer.File(path.resolve())
  return entries


def _needed(files: Iterable[pathlib.Path]) -> dict[str, pathlib.Path]:
  """Returns the shared libraries of programs and modules, by path."""
  result: dict[str, pathlib.Path] = {}
  for file in files:
    output = _output('ldd', str(file), check=False)
    for path in re.findall(r'(?:=> )?(/\S+) \(0x', output):
      result[path] = pathlib.Path(path).resolve()
  return result


def _system_libraries() -> list[pathlib.Path]:
  output = _output('/sbin/ldconfig', '-p')
  result = {}
  for name in _LIBRARIES:
    path = re.search(
      rf'^\s+{re.escape(name)} \(libc6,(?:x86-64|AArch64).*?=> (\S+)$',
      output,
      re.M,
    )
    if path:
      result[name] = pathlib.Path(path[1])
  if missing := set(_LIBRARIES) - set(result):
    raise app.UsageError(
      f'this machine has no {", ".join(sorted(missing))}. On Debian 12, run:'
      ' apt-get install libstdc++6 zlib1g'
    )
  return list(result.values())


def _packages(files: Iterable[pathlib.Path]) -> str:
  """Returns the Debian packages of files, or '' on other systems.

  Each line has one package and its version.
  """
  if shutil.which('dpkg-query') is None:
    return ''
  names = sorted({str(file) for file in files})
  # Older packages list files in /lib, and newer ones in /usr/lib.
  both = [*names, *(n.removeprefix('/usr') for n in names)]
  output = _output('dpkg-query', '--search', *both, check=False)
  packages = sorted({line.split(': ')[0] for line in output.splitlines()})
  if not packages:
    return ''
  shown = '${binary:Package} ${Version}\n'
  return _output('dpkg-query', '--show', f'--showformat={shown}', *packages)


def _licenses(packages: str) -> dict[str, layer.Entry]:
  entries: dict[str, layer.Entry] = {}
  for line in packages.splitlines():
    name = line.split(' ')[0].split(':')[0]
    path = pathlib.Path('/usr/share/doc', name, 'copyright')
    if path.exists():
      entries[str(path)[1:]] = layer.File(path.resolve())
  return entries


def entries() -> Mapping[str, layer.Entry]:
  """Returns all entries of the layer by their paths in the image."""
  executable, libraries = _python()
  shell = pathlib.Path('/bin/sh').resolve()
  whole: dict[str, layer.Entry] = {}
  for root in libraries:
    whole |= _standard_library(root)
  whole |= layer.compiled(whole)
  whole['usr/bin/python3.11'] = layer.File(executable, 0o755)
  whole['usr/bin/python3'] = layer.Link('python3.11')
  whole['usr/bin/sh'] = layer.File(shell, 0o755)
  files = [
    entry.contents
    for entry in whole.values()
    if isinstance(entry, layer.File)
    and isinstance(entry.contents, pathlib.Path)
  ]
  modules = [file for file in files if '.so' in file.suffixes]
  common = _system_libraries()
  loaded = _needed([executable, shell, *modules, *common])
  loaded |= {str(path): path.resolve() for path in common}
  for path, file in loaded.items():
    # /lib and similar directories are links into /usr.
    inside = path[1:] if path.startswith('/usr/') else f'usr{path}'
    whole[inside] = layer.File(file, 0o755)
  packages = _packages([*files, *loaded.values()])
  whole |= _licenses(packages)
  for name in ('bin', 'lib', 'lib64', 'sbin'):
    whole[name] = layer.Link(f'usr/{name}')
  for name in ('dev', 'proc', 'sys', 'usr/sbin'):
    whole[name] = layer.Directory()
  whole['tmp'] = layer.Directory(0o1777)
  whole['root'] = layer.Directory(0o700)
  whole['home/nonroot'] = layer.Directory(0o777)
  for name, text in (
    ('etc/passwd', _USERS),
    ('etc/group', _GROUPS),
    ('etc/nsswitch.conf', 'hosts: files dns\n'),
    ('opt/sax/base.txt', packages),
  ):
    whole[name] = layer.File(text.encode())
  for host in (_CERTIFICATES, '/etc/os-release'):
    if os.path.exists(host):
      whole[host[1:]] = layer.File(pathlib.Path(host).resolve())
  return whole


def main(argv: Sequence[str]) -> None:
  del argv
  layer.write(pathlib.Path(_LAYER.value), entries())


if __name__ == '__main__':
  flags.mark_flag_as_required('layer')
  program.run(main)
