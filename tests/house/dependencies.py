"""Finds dependencies in BUILD files that no import of a target's sources needs.

Bazel accepts a dependency that nothing imports. It then builds, links and
fetches more than a target needs. A dependency may stay for another reason, for
example its data, with a comment on its line:

    "//bundled/smollm2:model",  # keep: the weights

A comment above `deps` keeps all of them.
"""

import ast
from collections.abc import Iterator
import functools
import os
import pathlib
import re

from tests.house import problems
from tests.house import targets
from tests.house import tree

_KINDS = ('py_binary', 'py_library', 'py_test')
_IMPORT = re.compile(r'(?:from ([\w.]+) )?\bimport ([\w., ]+)')
# The modules of packages whose distribution has another name.
_MODULES = {
  'absl_py': 'absl',
  'grpcio': 'grpc',
  'grpcio_health_checking': 'grpc_health',
  'grpcio_reflection': 'grpc_reflection',
  'grpcio_tools': 'grpc_tools',
  'mlcommons_loadgen': 'mlperf_loadgen',
  'nvidia_ml_py': 'pynvml',
  'opentelemetry_api': 'opentelemetry',
  'opentelemetry_exporter_otlp_proto_grpc': 'opentelemetry.exporter',
  'opentelemetry_sdk': 'opentelemetry.sdk',
  'optimum_intel': 'optimum',
  'orbax_checkpoint': 'orbax',
  'protobuf': 'google.protobuf',
  'pyyaml': 'yaml',
  'starlark_pyo3': 'starlark',
}


def _named(path: pathlib.PurePath) -> Iterator[str]:
  """Yields the dotted names that a module imports or has in strings.

  A string can be a module that `importlib` imports or that another process
  runs, or the text of a program.
  """
  file = tree.ROOT / path
  if not file.is_file():
    return  # A rule generates it.
  for node in ast.walk(ast.parse(file.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
      yield node.module
      yield from (f'{node.module}.{alias.name}' for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
      yield node.value.removesuffix('.py').replace('/', '.')
      for package, names in _IMPORT.findall(node.value):
        yield package
        for name in names.split(','):
          yield f'{package}.{name.strip()}'.strip('.')


def _dotted(path: pathlib.PurePath) -> str:
  return '.'.join(path.with_suffix('').parts)


def _sources(target: targets.Target) -> list[pathlib.PurePath] | None:
  """Returns the sources of a target, or None if they are an expression."""
  default = [f'{target.attributes["name"]}.py']
  if target.kind != 'py_test':
    default = []
  if 'srcs' in target.expressions and 'srcs' not in target.attributes:
    return None
  return [
    pathlib.PurePath(target.package, source)
    for source in target.attributes.get('srcs', default)
  ]


@functools.cache
def modules(label: str) -> frozenset[str]:
  """Returns the dotted names of the modules and packages that a label adds."""
  if label.startswith('@'):
    name = label.rpartition('/')[2].rpartition(':')[2]
    return frozenset([_MODULES.get(name, name)])
  target = targets.resolve(label)
  sources = _sources(target)
  if sources is None:
    return frozenset([target.package.replace('/', '.')])
  if not sources:
    return frozenset().union(*map(modules, _labels(target)))
  names = set(map(_dotted, sources))
  for folder in target.attributes.get('imports', ()):
    root = _dotted(
      pathlib.PurePath(os.path.normpath(f'{target.package}/{folder}'))
    )
    names |= {name.removeprefix(f'{root}.') for name in names}
  return frozenset(names)


def _labels(target: targets.Target) -> dict[str, int]:
  """Returns the labels in a target's dependencies, and their lines."""
  expression = target.expressions.get('deps')
  if expression is None:
    return {}
  keys = {
    id(key)
    for node in ast.walk(expression)
    if isinstance(node, ast.Dict)  # The argument of select().
    for key in node.keys
  }
  return {
    node.value
    if node.value.startswith('@')
    else targets.absolute(node.value, target.package): node.lineno
    for node in ast.walk(expression)
    if isinstance(node, ast.Constant)
    and isinstance(node.value, str)
    and id(node) not in keys
  }


def unused(target: targets.Target) -> Iterator[tuple[str, int]]:
  """Yields the unused dependencies of a target, and their lines."""
  sources = _sources(target)
  if target.kind not in _KINDS or not sources:
    return
  # A program may depend on the library of its own module.
  named = set(map(_dotted, sources))
  for path in sources:
    named.update(_named(path))
  build = (tree.ROOT / target.package / 'BUILD').read_text(encoding='utf-8')
  lines = build.splitlines()
  labels = _labels(target)
  if labels and problems.KEPT.search(
    lines[target.expressions['deps'].lineno - 2]
  ):
    return
  for label, line in labels.items():
    used = any(
      name == module or name.startswith(f'{module}.')
      for name in named
      for module in modules(label)
    )
    if not used and not problems.KEPT.search(lines[line - 1]):
      yield label, line


def needed(label: str) -> set[str]:
  """Returns a label and all labels that it needs, directly or not.

  Only labels in BUILD files count, not the tools that a rule always uses.
  """
  reached, todo = set(), [label]
  while todo:
    name = todo.pop()
    if name in reached:
      continue
    reached.add(name)
    if target := targets.targets().get(name):
      todo += [
        targets.absolute(node.value, target.package)
        for expression in target.expressions.values()
        for node in ast.walk(expression)
        if isinstance(node, ast.Constant)
        and str(node.value).startswith(('//', ':'))
      ]
  return reached
