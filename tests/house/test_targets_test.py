"""Tests that every test is part of `bazel test //...`."""

import collections

from absl.testing import absltest

from tests.house import targets

# py_test does not merge a test that has one of these; see py_test.bzl.
_ALONE = {'alone', 'args', 'env', 'main', 'shard_count', 'tags', 'timeout'}


def _is_merged(target: targets.Target) -> bool:
  return (
    target.kind == 'py_test'
    and target.attributes.get('size') != 'large'
    and not _ALONE & set(target.attributes)
  )


class TestTargetsTest(absltest.TestCase):
  def test_merged_tests_are_above_py_tests(self):
    packages = collections.defaultdict(list)
    for target in targets.targets().values():
      packages[target.package].append(target)
    for package, rules in packages.items():
      with self.subTest(package):
        ends_with_tests = [rule.kind for rule in rules][-2:] == [
          'py_tests',
          'sources',
        ]
        self.assertEqual(any(map(_is_merged, rules)), ends_with_tests)


if __name__ == '__main__':
  absltest.main()
