"""Which distributions a set of Python files imports."""

import ast
from collections.abc import Iterable, Mapping, Sequence
import re
import sys

# Distributions whose modules do not have their name.
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


class UnknownImportError(ValueError):
  """A module is neither Python's, nor the files' own, nor a requirement's."""


def read_requirements(text: str) -> list[str]:
  """The requirements of a requirements file, without its comments."""
  lines = (line.partition('#')[0].strip() for line in text.splitlines())
  return [line for line in lines if line]


def module_of(requirement: str) -> str:
  """The top-level module that a requirement is imported as.

  Raises:
    ValueError: It does not begin with a distribution's name.
  """
  found = _NAME.match(requirement)
  if found is None:
    raise ValueError(
      f'requirement "{requirement}" does not begin with the name of a'
      ' distribution: write it as name==version'
    )
  name = found[0].lower()
  return _MODULES.get(name, name.replace('-', '_').replace('.', '_'))


def imported_modules(sources: Iterable[bytes]) -> set[str]:
  """Top-level modules that sources import, wherever in them.

  Modules that are imported by `importlib.import_module('name')` count too.
  """
  found: set[str] = set()
  for source in sources:
    for node in ast.walk(ast.parse(source)):
      if isinstance(node, ast.Import):
        found |= {alias.name for alias in node.names}
      elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        found.add(node.module)
      elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == 'import_module'
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
      ):
        found.add(node.args[0].value)
  return {name.partition('.')[0] for name in found}


def needed(
  files: Mapping[str, bytes],
  requirements: Sequence[str],
  extras: Mapping[str, Sequence[str]],
) -> tuple[list[str], dict[str, list[str]]]:
  """The requirements that Python files import.

  Args:
    files: Contents of the files by path.
    requirements: Requirements to choose from.
    extras: Further requirements, by the name of their extra.

  Returns:
    Those that are imported, and those of each extra that are.

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
      f'nothing in the requirements is imported as {sorted(modules - known)}:'
      ' add the distribution to third_party/python/requirements.in'
    )
  return core, more
