"""Finds the imports between the modules of this repository."""

import ast
import functools
import pathlib

from tests.house import tree

ROOMS = (
  *('benchmarks', 'bundled', 'converters', 'harness', 'saxml_ext', 'serve'),
  'tests',
)


def room(path: pathlib.PurePath) -> str:
  """Returns the room of a file, such as `saxml_ext/engine`."""
  depth = 2 if path.parts[0] == 'saxml_ext' else 1
  return '/'.join(path.parts[:depth])


@functools.cache
def imported(path: pathlib.PurePath) -> tuple[pathlib.PurePath, ...]:
  """Returns the files of this repository that a module imports.

  A file may not exist.
  """
  parsed = ast.parse((tree.ROOT / path).read_text(encoding='utf-8'))
  modules = []
  for node in ast.walk(parsed):
    if isinstance(node, ast.ImportFrom) and node.module:
      package = pathlib.PurePath(*node.module.split('.'))
      if package.parts[0] in ROOMS:
        modules += [package / f'{alias.name}.py' for alias in node.names]
  return tuple(modules)


def cycle(graph: dict[str, set[str]]) -> list[str]:
  """Returns the names along a cycle of a graph, or none without a cycle."""
  done: set[str] = set()
  for start in sorted(graph):
    trail: list[str] = []
    stack = [(start, iter(sorted(graph[start])))]
    while stack:
      name, successors = stack[-1]
      if name not in trail:
        trail.append(name)
      for other in successors:
        if other in trail:
          return [*trail[trail.index(other) :], other]
        if other not in done and other in graph:
          stack.append((other, iter(sorted(graph[other]))))
          break
      else:
        done.add(name)
        trail.pop()
        stack.pop()
  return []
