"""Reads Bazel targets from BUILD files, and the flags of programs."""

import ast
from collections.abc import Iterator
import dataclasses
import functools
import pathlib
from typing import Any

from tests.house import imports
from tests.house import tree

_DASHES = pathlib.PurePath('harness/dashes.py')


@dataclasses.dataclass(frozen=True)
class Target:
  """A rule of a BUILD file.

  Attributes:
    kind: The name of the rule, such as `py_binary`.
    package: The path of its package from the root.
    attributes: The attributes whose values are literals.
    expressions: The syntax trees of all attributes.
  """

  kind: str
  package: str
  attributes: dict[str, Any]
  expressions: dict[str, ast.expr]

  @property
  def label(self) -> str:
    return f'//{self.package}:{self.attributes["name"]}'


def absolute(label: str, package: str) -> str:
  """Returns the full form of a label in a package: `//a/b:c`."""
  if label.startswith(':'):
    return f'//{package}{label}'
  if not label.startswith('//'):
    label = f'//{label}'
  return label if ':' in label else f'{label}:{label.rsplit("/", 1)[1]}'


def _rules(path: pathlib.Path) -> Iterator[Target]:
  package = path.parent.as_posix()
  text = (tree.ROOT / path).read_text(encoding='utf-8')
  for node in ast.parse(text).body:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
      attributes = {}
      expressions = {}
      for keyword in node.value.keywords:
        expressions[keyword.arg] = keyword.value
        try:
          attributes[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
          continue  # This module reads no glob or name.
      if 'name' in attributes and isinstance(node.value.func, ast.Name):
        name = '' if package == '.' else package
        yield Target(node.value.func.id, name, attributes, expressions)


@functools.cache
def targets() -> dict[str, Target]:
  """Returns all rules of the repository's BUILD files by their labels."""
  rules = [rule for path in tree.files('BUILD') for rule in _rules(path)]
  return {rule.label: rule for rule in rules}


def resolve(label: str) -> Target:
  """Returns a target, after following aliases.

  Raises:
    KeyError: No target has that label.
  """
  target = targets()[label]
  while target.kind == 'alias':
    actual = absolute(target.attributes['actual'], target.package)
    target = targets()[actual]
  return target


@functools.cache
def _defined(path: pathlib.PurePath) -> frozenset[str]:
  names = set()
  for node in ast.walk(ast.parse((tree.ROOT / path).read_text('utf-8'))):
    if (
      isinstance(node, ast.Call)
      and isinstance(node.func, ast.Attribute)
      and node.func.attr.startswith(('DEFINE_', 'add_argument'))
      and node.args
      and isinstance(node.args[0], ast.Constant)
    ):
      names.add(str(node.args[0].value).lstrip('-'))
  return frozenset(names)


def flags(target: Target) -> set[str]:
  """Returns the flags that a program or an imported module defines.

  Programs that also accept dashes have both spellings.
  """
  # A test without sources has the module of its name; see py_test.bzl.
  sources = target.attributes.get('srcs', [f'{target.attributes["name"]}.py'])
  main = target.attributes.get('main', sources[0])
  todo: list[pathlib.PurePath] = [pathlib.PurePath(target.package, main)]
  seen, names = set(), set()
  while todo:
    path = todo.pop()
    if path not in seen and (tree.ROOT / path).is_file():
      seen.add(path)
      names.update(_defined(path))
      todo += imports.imported(path)
  if _DASHES in seen:
    names |= {name.replace('_', '-') for name in names}
  return names
