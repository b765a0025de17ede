"""Runs .bzl files and MODULE.bazel without Bazel, and records their calls.

Bazel 4.2.3 reads neither MODULE.bazel nor module extensions. Here they run in a
Starlark interpreter. Bazel's own functions only check their arguments and
record the call.
"""

from collections.abc import Callable, Sequence
import dataclasses
import json
from typing import Any

import starlark

from tests.house import tree

# The attributes of the tags of rules_python 2.3.2's extensions that this
# repository uses. They are from python/private/python.bzl and
# python/private/pypi/extension.bzl.
_TAGS = {
  '@rules_python//python/extensions:python.bzl': {
    'defaults': ['python_version', 'python_version_env', 'python_version_file'],
    'toolchain': ['configure_coverage_tool', 'is_default', 'python_version'],
  },
  '@rules_python//python/extensions:pip.bzl': {
    'default': ['default_hub'],
    'override': ['file', 'patch_strip', 'patches'],
    'parse': [
      'envsubst',
      'experimental_index_url',
      'extra_pip_args',
      'hub_name',
      'python_version',
      'requirements_lock',
    ],
  },
}
# The prelude defines Bazel's functions. A repository rule checks its attributes
# as Bazel does.
_PRELUDE = """
def _attribute(**options):
    return options

attr = struct(
    bool = _attribute,
    label = _attribute,
    label_keyed_string_dict = _attribute,
    string = _attribute,
    string_dict = _attribute,
    string_list = _attribute,
)

def repository_rule(implementation, attrs = {{}}, doc = "", **kwargs):
    def declare(name, **values):
        for key in values:
            if key not in attrs:
                fail("repository %s: no attribute %s" % (name, key))
        for key, options in attrs.items():
            if options.get("mandatory") and key not in values:
                fail("repository %s lacks the attribute %s" % (name, key))
        record("repository", dict(values, name = name))
    return declare

def rule(implementation, attrs, **kwargs):
    return None

def module_extension(implementation, **kwargs):
    return implementation

def Label(text):
    return text

_TAGS = {tags}

def use_extension(file, name):
    def tag(attributes, kind):
        def call(**values):
            for key in values:
                if key not in attributes:
                    fail("%s has no attribute %s" % (kind, key))
            record(kind, values)
        return call
    tags = {{}}
    for kind, attributes in _TAGS.get(file, {{}}).items():
        tags[kind] = tag(attributes, name + "." + kind)
    record("use_extension", {{"file": file, "name": name}})
    return struct(_name = name, **tags)

def use_repo(extension, *names):
    record("use_repo", {{"extension": extension._name, "names": list(names)}})

def module(**values):
    record("module", values)

def bazel_dep(**values):
    record("bazel_dep", values)
"""
_GIT = """
git_repository = repository_rule(
    implementation = None,
    attrs = {"commit": {}, "remote": {}},
)
"""


@dataclasses.dataclass(frozen=True)
class Call:
  """A recorded call.

  Attributes:
    kind: The function, such as "bazel_dep" or "pip.parse"; "repository" for a
      declared repository.
    values: The arguments by name.
  """

  kind: str
  values: dict[str, Any]


class Program:
  """A file that has run, with its calls.

  Attributes:
    calls: The recorded calls in order.
    value: The value of the last expression.
  """

  def __init__(
    self,
    path: str,
    then: str = '',
    **functions: Callable[..., object],
  ):
    """Runs a file.

    Args:
      path: The file, relative to the repository's root.
      then: The Starlark code that runs after it in the same file.
      **functions: The additional functions that the file and `then` may call.
    """
    self.calls: list[Call] = []
    self._functions = functions
    self._module, self.value = self._run(path, _text(path) + '\n' + then)

  def arguments(self, kind: str) -> Sequence[dict[str, Any]]:
    """Returns the arguments of all calls of a kind."""
    return [call.values for call in self.calls if call.kind == kind]

  def _record(self, kind: str, values: dict[str, Any]) -> None:
    self.calls.append(Call(kind, values))

  def _run(self, path: str, text: str) -> tuple[starlark.Module, object]:
    module = starlark.Module()
    module.add_callable('record', self._record)
    for name, function in self._functions.items():
      module.add_callable(name, function)
    prelude = _PRELUDE.format(tags=json.dumps(_TAGS))
    value = starlark.eval(
      module,
      starlark.parse(path, prelude + text, starlark.Dialect.extended()),
      starlark.Globals.extended_by([starlark.LibraryExtension.StructType]),
      starlark.FileLoader(lambda name: self._load(path, name)),
    )
    return module, value

  def _load(self, path: str, name: str) -> starlark.FrozenModule:
    if name == '@bazel_tools//tools/build_defs/repo:git.bzl':
      return self._run(name, _GIT)[0].freeze()
    package, _, file = name.rpartition(':')
    folder = package.removeprefix('//') or path.rpartition('/')[0]
    loaded = f'{folder}/{file}'
    return self._run(loaded, _text(loaded))[0].freeze()


def _text(path: str) -> str:
  return (tree.ROOT / path).read_text(encoding='utf-8')
