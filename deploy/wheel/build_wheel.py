"""Builds a wheel (PEP 427) from files that a manifest names.

Equal files give equal bytes: entries are sorted and have no times.
"""

import ast
import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
import hashlib
import io
import os
import re
import sys
import zipfile

from absl import flags

from saxml_ext.common import program

_WHEEL = flags.DEFINE_string('wheel', None, 'The file to write.')
_MANIFEST = flags.DEFINE_string(
  'manifest', None, 'Lines with a path in the wheel, a tab and a file.'
)
_SUMMARY = flags.DEFINE_string('summary', None, 'The summary, in one line.')
_README = flags.DEFINE_string('readme', None, 'The description in Markdown.')
_LICENSE = flags.DEFINE_string('license', None, 'The license.')
_REQUIREMENTS = flags.DEFINE_string('requirements', None, 'Requirements file.')
_LOCK = flags.DEFINE_string('lock', None, 'Lock file, for --pinned.')
_PINNED = flags.DEFINE_multi_string(
  'pinned', [], 'A requirement that needs exactly the version in the lock file.'
)
_EXTRA = flags.DEFINE_multi_string(
  'extra', [], 'An extra, as NAME=REQUIREMENTS_FILE.'
)
_PROGRAM = flags.DEFINE_multi_string(
  'program', [], 'A console script, as NAME=MODULE.'
)
_MODULE = flags.DEFINE_multi_string(
  'module', [], 'A console script that is also a top-level module.'
)

# A zip archive cannot represent an earlier time.
_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
# The oldest Python, and newer ones on which the wheel was tried.
_PYTHONS = ('3.11', '3.12', '3.13')
_LAUNCHER_TEXT = '''"""The console scripts: each runs one module as __main__."""

import runpy


def _run(module: str) -> None:
  runpy.run_module(module, run_name='__main__', alter_sys=True)

'''
# The modules of these distributions have other names.
_MODULES = {
  'absl-py': 'absl',
  'grpcio': 'grpc',
  'grpcio-health-checking': 'grpc_health',
  'grpcio-reflection': 'grpc_reflection',
  'grpcio-tools': 'grpc_tools',
  'mlcommons-loadgen': 'mlperf_loadgen',
  'opentelemetry-api': 'opentelemetry',
  'opentelemetry-exporter-otlp-proto-grpc': 'opentelemetry',
  'opentelemetry-sdk': 'opentelemetry',
  'protobuf': 'google',
  'pyyaml': 'yaml',
}
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*')
# manylinux_2_35 lets a library require up to these versions of the C and the
# C++ library (PEP 600 and auditwheel's policies).
_NEWEST = {b'GLIBC': (2, 35), b'GLIBCXX': (3, 4, 30)}
# The keys are ELF's e_machine, two bytes from byte 18 on. The values are the
# names in platform tags.
_MACHINES = {62: 'x86_64', 183: 'aarch64'}


def _programs(
  launcher_name: str, programs: Mapping[str, str], modules: Sequence[str]
) -> dict[str, bytes]:
  """Returns the launcher of all programs, and the modules of some."""
  launcher = _LAUNCHER_TEXT
  files = {}
  for name, module in programs.items():
    launcher += f'\ndef {_function(name)}() -> None:\n  _run({module!r})\n\n'
  for name in modules:
    text = (
      f'"""Runs {programs[name]}."""\n\nimport {launcher_name}\n\n'
      f"if __name__ == '__main__':\n  {launcher_name}.{name}()\n"
    )
    files[f'{name}.py'] = text.encode('ascii')
  files[f'{launcher_name}.py'] = f'{launcher.rstrip()}\n'.encode('ascii')
  return files


def _function(program: str) -> str:
  """Returns the name of the function that runs a program."""
  return program.replace('-', '_')


def _metadata(
  name: str,
  version: str,
  summary: str,
  description: str,
  requirements: Sequence[str],
  extras: Mapping[str, Sequence[str]],
) -> str:
  lines = [
    'Metadata-Version: 2.1',
    f'Name: {name.replace("_", "-")}',
    f'Version: {version}',
    f'Summary: {summary}',
    'Author: The gptj-sax authors',
    'License: Apache-2.0',
    'Classifier: Development Status :: 4 - Beta',
    'Classifier: License :: OSI Approved :: Apache Software License',
    'Classifier: Operating System :: POSIX :: Linux',
    *(f'Classifier: Programming Language :: Python :: {v}' for v in _PYTHONS),
    'Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence',
    f'Requires-Python: >={_PYTHONS[0]}',
    *(f'Requires-Dist: {requirement}' for requirement in requirements),
  ]
  for extra, more in extras.items():
    lines.append(f'Provides-Extra: {extra}')
    lines += [f'Requires-Dist: {line} ; extra == "{extra}"' for line in more]
  lines += ['Description-Content-Type: text/markdown', '', description]
  return '\n'.join(lines)


def _check_platform(files: Mapping[str, bytes], tag: str) -> None:
  """Raises ValueError if a library is not built for the platform of the tag."""
  for path, data in files.items():
    if path.endswith('.so'):
      machine = _MACHINES.get(int.from_bytes(data[18:20], 'little'), 'unknown')
      if data[:4] != b'\x7fELF' or not tag.endswith(f'_{machine}'):
        raise ValueError(
          f'{path} is for processor "{machine}", but the wheel is for {tag}.'
          ' Use the tag of that processor'
        )
      _check_libraries(path, data)


def _check_libraries(path: str, data: bytes) -> None:
  """Raises ValueError if a library needs versions that its tag forbids."""
  for name, newest in _NEWEST.items():
    for match in re.finditer(rb'\b%s_([0-9.]+)' % name, data):
      needed = tuple(int(part) for part in match[1].split(b'.') if part)
      if needed > newest:
        limit = '.'.join(map(str, newest))
        raise ValueError(
          f'{path} needs {match[0].decode()}, but this tag allows at most'
          f' {name.decode()}_{limit}. Build it on Debian 12 or Ubuntu 22.04'
        )


def build(
  wheel_name: str,
  files: Mapping[str, bytes],
  summary: str,
  description: str,
  license_text: bytes,
  programs: Mapping[str, str],
  modules: Sequence[str],
  requirements: Sequence[str],
  extras: Mapping[str, Sequence[str]],
) -> bytes:
  """Returns the bytes of a wheel.

  Args:
    wheel_name: The file's name, which has distribution, version and tags.
    files: The contents by path in the wheel.
    summary: The line for the metadata.
    description: The Markdown text for the metadata.
    license_text: The contents of the license file.
    programs: The modules by the name of the console script that runs them.
    modules: The programs that `python3 -m` also runs by that name.
    requirements: The requirements to declare if `files` import them.
    extras: The requirements of each extra, to declare in the same way.

  Raises:
    ValueError: The wheel's name is malformed, a library is for another
      platform, or no requirement provides an imported module.
  """
  parts = re.fullmatch(r'(\w+)-([^-]+)-(.+)\.whl', wheel_name)
  if parts is None:
    raise ValueError(
      f'"{wheel_name}" is not the name of a wheel. Name the file'
      ' <distribution>-<version>-<tags>.whl'
    )
  name, version, tag = parts.groups()
  _check_platform(files, tag)
  pure = tag.endswith('-any')
  core, more = needed(files, requirements, extras)
  info = f'{name}-{version}.dist-info'
  # Two wheels in one environment must not have different files of one name.
  launcher = f'{name}_programs'
  scripts = '\n'.join(f'{p} = {launcher}:{_function(p)}' for p in programs)
  metadata = {
    'LICENSE': license_text,
    'METADATA': _metadata(
      name, version, summary, description, core, more
    ).encode(),
    'WHEEL': (
      'Wheel-Version: 1.0\nGenerator: gptj_sax\n'
      f'Root-Is-Purelib: {str(pure).lower()}\nTag: {tag}\n'
    ).encode('ascii'),
    'entry_points.txt': f'[console_scripts]\n{scripts}\n'.encode('ascii'),
  }
  content = dict(
    sorted((dict(files) | _programs(launcher, programs, modules)).items())
  )
  content |= {f'{info}/{path}': data for path, data in metadata.items()}
  content[f'{info}/RECORD'] = _record(content.items(), f'{info}/RECORD')
  result = io.BytesIO()
  with zipfile.ZipFile(result, 'w') as archive:
    for path, data in content.items():
      entry = zipfile.ZipInfo(path, _TIME)
      entry.external_attr = _MODE
      archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=6)
  return result.getvalue()


def _record(content: Iterable[tuple[str, bytes]], own_path: str) -> bytes:
  lines = []
  for path, data in content:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    lines.append(f'{path},sha256={digest.decode().rstrip("=")},{len(data)}\n')
  return ''.join([*lines, f'{own_path},,\n']).encode('ascii')


def _read(path: str) -> bytes:
  with open(path, 'rb') as f:
    return f.read()


def read_manifest(lines: Iterable[str]) -> dict[str, bytes]:
  """Returns the contents by path in the wheel.

  Args:
    lines: Lines with a path in the wheel, a tab and the path of a file, or of a
      directory whose files all become part of the wheel.
  """
  files = {}
  for path, source in (line.split('\t') for line in lines):
    if not os.path.isdir(source):
      files[path] = _read(source)
    for directory, _, names in os.walk(source):
      for name in names:
        file = os.path.join(directory, name)
        files[path + file.removeprefix(source)] = _read(file)
  return files


def pin(
  requirements: Iterable[str], pinned: Collection[str], lock: str
) -> list[str]:
  """Returns requirements, some of them with the exact version of a lock file.

  Args:
    requirements: The requirements. Those that are pinned are names only.
    pinned: The names of distributions to pin.
    lock: The text of the lock file.

  Raises:
    ValueError: The lock file lacks a distribution.
  """
  versions = dict(re.findall(r'^([\w.-]+)==(\S+)', lock, re.MULTILINE))
  if missing := set(pinned) - versions.keys():
    raise ValueError(
      f'the lock file has no {", ".join(sorted(missing))}. Add it to'
      ' third_party/python/requirements.in and run update_locks.sh'
    )
  return [f'{r}=={versions[r]}' if r in pinned else r for r in requirements]


def _pairs(values: Iterable[str]) -> dict[str, str]:
  return dict(value.split('=', 1) for value in values)


class UnknownImportError(ValueError):
  """A module is not in Python, in the files or in a requirement."""


def read_requirements(text: str) -> list[str]:
  """Returns the requirements in a requirements file, without its comments."""
  lines = (line.partition('#')[0].strip() for line in text.splitlines())
  return [line for line in lines if line]


def module_of(requirement: str) -> str:
  """Returns the name under which a requirement's top-level module is imported.

  Raises:
    ValueError: The requirement does not begin with a distribution's name.
  """
  match = _NAME.match(requirement)
  if match is None:
    raise ValueError(
      f'requirement "{requirement}" does not begin with the name of a'
      ' distribution. Write it as name==version'
    )
  name = match[0].lower()
  return _MODULES.get(name, name.replace('-', '_').replace('.', '_'))


def imported_modules(sources: Iterable[bytes]) -> set[str]:
  """Returns the top-level modules that sources import anywhere.

  Imports by `importlib.import_module('name')` count too.
  """
  modules: set[str] = set()
  for source in sources:
    for node in ast.walk(ast.parse(source)):
      if isinstance(node, ast.Import):
        modules |= {alias.name for alias in node.names}
      elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        modules.add(node.module)
      elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == 'import_module'
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
      ):
        modules.add(node.args[0].value)
  return {name.partition('.')[0] for name in modules}


def needed(
  files: Mapping[str, bytes],
  requirements: Sequence[str],
  extras: Mapping[str, Sequence[str]],
) -> tuple[list[str], dict[str, list[str]]]:
  """Returns the requirements that Python files import.

  Args:
    files: The contents of the files by path.
    requirements: The requirements to choose from.
    extras: The further requirements by the name of their extra.

  Returns:
    The imported requirements, and the imported ones of each extra.

  Raises:
    UnknownImportError: A module belongs to none of them.
  """
  own = {path.partition('/')[0].removesuffix('.py') for path in files}
  modules = imported_modules(
    data for path, data in files.items() if path.endswith('.py')
  )
  modules -= own | sys.stdlib_module_names

  def chosen(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if module_of(line) in modules]

  core = chosen(requirements)
  more = {name: chosen(lines) for name, lines in extras.items()}
  known = {
    module_of(line) for lines in (core, *more.values()) for line in lines
  }
  if modules - known:
    raise UnknownImportError(
      f'no requirement provides the imports {sorted(modules - known)}. Add'
      ' the distribution to third_party/python/requirements.in'
    )
  return core, more


def main(argv: Sequence[str]) -> None:
  del argv
  lines = _read(_MANIFEST.value).decode().splitlines()
  data = build(
    os.path.basename(_WHEEL.value),
    read_manifest(lines),
    _SUMMARY.value,
    _read(_README.value).decode(),
    _read(_LICENSE.value),
    _pairs(_PROGRAM.value),
    _MODULE.value,
    pin(
      read_requirements(_read(_REQUIREMENTS.value).decode()),
      _PINNED.value,
      _read(_LOCK.value).decode(),
    ),
    {
      name: read_requirements(_read(path).decode())
      for name, path in _pairs(_EXTRA.value).items()
    },
  )
  with open(_WHEEL.value, 'wb') as f:
    f.write(data)


if __name__ == '__main__':
  program.run(main)
