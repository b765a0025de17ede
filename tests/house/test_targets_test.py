"""Tests that every test is part of `bazel test //...`."""

import collections

from absl.testing import absltest

from tests.house import dependencies
from tests.house import targets

# py_test does not merge a test that has one of these; see py_test.bzl.
_ALONE = {
  *('alone', 'args', 'each_run', 'env', 'main', 'shard_count', 'tags'),
  'timeout',
}
_ENGINE = '//saxml_ext/engine:runner'
_WITHOUT_ENGINE = 'tests_without_engine'


def _is_merged(target: targets.Target) -> bool:
  return (
    target.kind == 'py_test'
    and target.attributes.get('size') != 'large'
    and not _ALONE & set(target.attributes)
  )


def _part_of(target: targets.Target) -> str:
  return target.attributes.get('part_of', 'tests')


class TestTargetsTest(absltest.TestCase):
  def test_merged_tests_are_above_py_tests(self):
    packages = collections.defaultdict(list)
    for target in targets.targets().values():
      packages[target.package].append(target)
    for package, rules in packages.items():
      with self.subTest(package):
        merged = sorted({_part_of(rule) for rule in rules if _is_merged(rule)})
        kinds = [rule.kind for rule in rules]
        names = [
          rule.attributes['name'] for rule in rules if rule.kind == 'py_tests'
        ]
        self.assertEqual(names, merged)
        if merged:
          end = [*(['py_tests'] * len(merged)), 'sources']
          self.assertEqual(kinds[-len(end) :], end)

  def test_tests_without_engine_do_not_depend_on_it(self):
    labels = [
      rule.label
      for rule in targets.targets().values()
      if _is_merged(rule) and _part_of(rule) == _WITHOUT_ENGINE
    ]
    self.assertNotEmpty(labels)
    wrong = [label for label in labels if _ENGINE in dependencies.needed(label)]
    self.assertEmpty(wrong, 'Remove part_of from these tests')


if __name__ == '__main__':
  absltest.main()
