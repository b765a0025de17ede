"""Tests that programs accept the values of the flags in documented commands.

//tests/house:docs_test checks that the programs and their flags exist. These
tests read the possible values of a flag, and what the build of a program
contains, from the sources.
"""

import ast
from collections.abc import Iterator
import functools
import importlib
import pathlib
import shlex
from typing import Any

from absl.testing import absltest

from harness.benchmarks import all as benchmarks
from harness.scenarios import job
from tests.house import commands
from tests.house import imports
from tests.house import targets
from tests.house import tree

_BAZEL = ('bazel', './bazelw')
_BUILT = 'bazel-bin/'
# A flag whose value has the flags of another program.
_NESTED = {'submission': '//harness:submission'}
# This page has commands of published guides.
_SEEDS = pathlib.PurePath('tests/docs/seeds.md')
# The prefix of targets in the pinned tree of Sax.
_OVERLAY = '//saxml/gptj_'
# A word of a page that stands for any value.
_PLACEHOLDERS = ('...', '$', '<', 'X', 'NAME')


class _Names(dict):
  """Names in a module: those that it imports or defines.

  A module is imported only if its names cannot be evaluated without that,
  because two programs may define the same flag.
  """

  def __init__(self, path: pathlib.PurePath):
    super().__init__()
    self._path = path
    self._imported, self._assigned = {}, {}
    for node in ast.parse((tree.ROOT / path).read_text('utf-8')).body:
      if isinstance(node, ast.ImportFrom):
        for name in node.names:
          own = f'{node.module}.{name.name}'
          self._imported[name.asname or name.name] = own
      elif isinstance(node, ast.Assign):
        self._assigned[ast.unparse(node.targets[0])] = node.value
      elif isinstance(node, ast.AnnAssign) and node.value:
        self._assigned[ast.unparse(node.target)] = node.value

  def __missing__(self, name: str) -> Any:
    if name in self._imported:
      return _Module(self._imported[name])
    if name not in self._assigned:
      raise KeyError(name)  # It is a builtin, or not an assigned name.
    try:
      return self.evaluate(self._assigned[name])
    except NameError:  # A class, or a name in an inner scope.
      module = '.'.join(self._path.with_suffix('').parts)
      return vars(importlib.import_module(module))[name]

  def evaluate(self, expression: ast.expr) -> Any:
    """Returns the value of an expression in the module."""
    # The expression is from a source of this repository.
    code = compile(ast.Expression(expression), str(self._path), 'eval')
    return eval(code, {}, self)  # pylint: disable=eval-used


class _Module:
  """A module whose attributes are evaluated when they are used."""

  def __init__(self, module: str):
    self._module = module
    self._names = _Names(pathlib.PurePath(f'{module.replace(".", "/")}.py'))

  def __getattr__(self, name: str) -> Any:
    try:
      return self._names[name]
    except KeyError:  # A class or a function.
      return vars(importlib.import_module(self._module))[name]


@functools.cache
def _enums(path: pathlib.PurePath) -> dict[str, ast.expr]:
  """Returns the expressions of the possible values of a module's flags."""
  values = {}
  for node in ast.walk(ast.parse((tree.ROOT / path).read_text('utf-8'))):
    if (
      isinstance(node, ast.Call)
      and isinstance(node.func, ast.Attribute)
      and node.func.attr in ('DEFINE_enum', 'DEFINE_multi_enum')
      and isinstance(node.args[0], ast.Constant)
    ):
      values[str(node.args[0].value)] = node.args[2]
  return values


@functools.cache
def _values(path: pathlib.PurePath, name: str) -> tuple[str, ...]:
  return tuple(_Names(path).evaluate(_enums(path)[name]))


@functools.cache
def _modules(label: str) -> frozenset[pathlib.PurePath]:
  """Returns the modules of a program, also those that it imports."""
  target = targets.resolve(label)
  sources = target.attributes.get('srcs', [f'{target.attributes["name"]}.py'])
  main = target.attributes.get('main', sources[0])
  todo, seen = [pathlib.PurePath(target.package, main)], set()
  while todo:
    path = todo.pop()
    if path not in seen and (tree.ROOT / path).is_file():
      seen.add(path)
      todo += imports.imported(path)
  return frozenset(seen)


@functools.cache
def _contents(label: str) -> frozenset[str]:
  """Returns the labels of all targets that a program is built with."""
  todo, seen = [label], set()
  while todo:
    current = todo.pop()
    if current in seen or current not in targets.targets():
      continue
    seen.add(current)
    target = targets.targets()[current]
    for attribute in ('actual', 'data', 'deps', 'srcs'):
      labels = target.attributes.get(attribute, [])
      labels = [labels] if isinstance(labels, str) else labels
      todo += [
        targets.absolute(one, target.package)
        for one in labels
        if one.startswith((':', '//'))
      ]
  return frozenset(seen)


def _flags(words: tuple[str, ...]) -> dict[str, str]:
  """Returns the values of the flags in a form such as --flag=value."""
  pairs = (w.lstrip('-').partition('=') for w in words if w.startswith('--'))
  return {name.replace('-', '_'): value for name, _, value in pairs if value}


def _calls(words: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
  """Yields the label of each program that a command runs, and its flags."""
  if words[0] in _BAZEL:
    cut = words.index('--') if '--' in words else len(words)
    plain = [word for word in words[1:cut] if not word.startswith('-')]
    if plain[:1] != ['run'] or len(plain) != 2 or _OVERLAY in plain[1]:
      return
    label, given = targets.absolute(plain[1], ''), _flags(words[cut + 1 :])
  elif words[0].startswith(_BUILT):
    package, _, name = words[0].removeprefix(_BUILT).rpartition('/')
    label, given = f'//{package}:{name}', _flags(words[1:])
  else:
    return
  yield label, given
  for flag, program in _NESTED.items():
    if flag in given:
      yield program, _flags(tuple(shlex.split(given[flag])))


def _tested(words: tuple[str, ...]) -> Iterator[str]:
  """Yields the labels of single tests that a command runs."""
  plain = [word for word in words[1:] if not word.startswith('-')]
  if words[0] in _BAZEL and plain[:1] == ['test']:
    for word in plain[1:]:
      if word.startswith('//') and '...' not in word:
        yield targets.absolute(word, '')


def _is_nightly(label: str) -> bool:
  target = targets.targets().get(label)
  if target is None:
    return False
  tags = target.attributes.get('tags', [])
  return 'nightly' in tags or 'each_run' in target.attributes


def problems(words: tuple[str, ...]) -> list[str]:
  """Returns the reasons why a command fails, or runs fewer tests than named."""
  at_night = '--config=nightly' in words
  reasons = [
    f'{label} runs only {"without" if at_night else "with"} --config=nightly'
    for label in _tested(words)
    if at_night != _is_nightly(label)
  ]
  for label, given in _calls(words):
    try:
      target = targets.resolve(label)
    except KeyError:
      reasons.append(f'{label} is no target')
      continue
    unknown = set(given) - targets.flags(target)
    if words[0].startswith(_BUILT):
      reasons += [f'{label} has no flag {name}' for name in sorted(unknown)]
    modules = _modules(target.label)
    for name, value in given.items():
      for path in modules:
        if name not in _enums(path) or value.startswith(_PLACEHOLDERS):
          continue
        allowed = _values(path, name)
        if value not in allowed:
          text = f'--{name}={value} of {label} must be one of'
          reasons.append(f'{text} {", ".join(map(str, allowed))}')
    if pathlib.PurePath('harness/scenarios/job.py') in modules:
      reasons += _missing(target.label, given)
  return reasons


def _missing(label: str, given: dict[str, str]) -> list[str]:
  """Returns a message if a program does not contain the system of a job."""
  model = given.get('model', job.MODEL.default)
  kinds = benchmarks.MODELS[model].systems
  kind = given.get('system', kinds[0])
  package, _, name = job.KINDS[kind].program.rpartition('/')
  if f'//{package}:{name}' in _contents(label):
    return []
  return [f'{label} does not contain --system={kind}']


class CommandsTest(absltest.TestCase):
  def test_commands_have_values_that_their_programs_accept(self):
    wrong, count = [], 0
    for page in [*commands.pages(), _SEEDS]:
      for command in commands.commands(page):
        count += any(_calls(command.words))
        wrong += [f'{command.source}: {p}' for p in problems(command.words)]
    self.assertGreater(count, 200)
    self.assertEqual(wrong, [])

  def test_mistakes_are_reported(self):
    for command, message in (
      ('run //harness:offline -- --system=engine', 'not contain --system=eng'),
      ('run //harness:server -- --model=bert-99', 'not contain --system=onnx'),
      ('run //harness:main -- --round=v3.0', '--round=v3.0 .* one of v3.1'),
      ('run //harness:main -- --execution-mode=no', 'of test, fast, valid'),
      ("run //harness:main -- --submission='--division=x'", '=x .* open'),
      ('run //harness:mian', '//harness:mian is no target'),
      ('test //tests/parity:families_test', 'only with --config=nightly'),
      ('test --config=nightly //serve:tests', 'only without --config=nightly'),
    ):
      words = tuple(shlex.split(f'./bazelw {command}'))
      with self.subTest(command):
        self.assertRegex(' '.join(problems(words)), message)
    built = ('bazel-bin/saxml_ext/admin/admin_config', '--fsroot=/a')
    self.assertIn('has no flag fsroot', ' '.join(problems(built)))

  def test_sound_commands_are_accepted(self):
    for command in (
      'run //harness:main -- --system=reference --model=gptj-99.9',
      'run //harness:main -- --model=bert-99 --round=v5.1',
      'run //harness:interactive',
      'test //harness:offline_test --system=no',
    ):
      words = tuple(shlex.split(f'bazel {command}'))
      self.assertEqual(problems(words), [])


if __name__ == '__main__':
  absltest.main()
