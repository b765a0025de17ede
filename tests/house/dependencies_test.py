"""Tests the dependencies in BUILD files, and the check itself."""

import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests.house import dependencies
from tests.house import targets
from tests.house import tree

_LIBRARY = """
py_library(
    name = "settings",
    srcs = ["settings.py"],
)

py_library(
    name = "group",
    deps = [":settings"],
)

py_library(
    name = "data",
    data = ["rows.json"],
)
"""


class DependenciesTest(parameterized.TestCase):
  def test_all_are_used(self):
    unused = [
      f'{target.package}/BUILD:{line}: {label}'
      for target in targets.targets().values()
      for label, line in dependencies.unused(target)
    ]
    self.assertEqual(unused, [], 'Remove the dependencies that nothing imports')

  def unused(self, source: str, deps: str) -> list[str]:
    """Returns the unused dependencies of a library with one source."""
    root = pathlib.Path(self.create_tempdir().full_path)
    build = f'{_LIBRARY}\npy_library(\n    name = "a",\n    srcs = ["a.py"],\n'
    (root / 'room').mkdir()
    (root / 'room/BUILD').write_text(f'{build}{deps})\n', encoding='utf-8')
    (root / 'room/a.py').write_text(source, encoding='utf-8')
    caches = (targets.targets, dependencies.modules)
    for cache in caches:
      cache.cache_clear()
      self.addCleanup(cache.cache_clear)
    with mock.patch.object(tree, 'ROOT', root):
      target = targets.targets()['//room:a']
      return [label for label, _ in dependencies.unused(target)]

  @parameterized.parameters(
    ('from room import settings', '":settings"'),
    ('from room import settings', '":group"'),
    ('import room.settings', '"//room:settings"'),
    ('import numpy as np', '"@pypi//numpy"'),
    ('from google.protobuf import message', '"@pypi//protobuf"'),
    ('def f():\n  import yaml', '"@pypi//pyyaml"'),
    ('importlib.import_module("room.settings")', '":settings"'),
    ('run(["room/settings.py"])', '":settings"'),
    ('PROGRAM = "x = 1; from room import rows, settings"', '":settings"'),
  )
  def test_used_dependency_is_accepted(self, source, label):
    self.assertEqual(self.unused(source, f'    deps = [{label}],\n'), [])

  @parameterized.parameters(
    ('from room import settings_test', '":settings"', '//room:settings'),
    ('from other import settings', '":group"', '//room:group'),
    ('import numpy', '":data"', '//room:data'),
    ('import numpydoc', '"@pypi//numpy"', '@pypi//numpy'),
  )
  def test_unused_dependency_is_a_problem(self, source, label, problem):
    self.assertEqual(self.unused(source, f'    deps = [{label}],\n'), [problem])

  def test_choices_of_select_are_read(self):
    deps = '    deps = ["@pypi//jax"] + select({"//a:b": ["@pypi//numpy"]}),\n'
    self.assertEqual(self.unused('import jax', deps), ['@pypi//numpy'])

  @parameterized.parameters(
    ('    deps = [\n        ":data",  # keep: the rows\n    ],\n', False),
    ('    deps = [\n        ":data",  # the rows\n    ],\n', True),
    ('    # keep: the rows\n    deps = [":data"],\n', False),
  )
  def test_comment_keeps_dependencies(self, deps, is_problem):
    self.assertEqual(bool(self.unused('', deps)), is_problem)


if __name__ == '__main__':
  absltest.main()
