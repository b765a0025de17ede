"""Tests that the hooks of pre-commit use the programs of //tests/house."""

import re

from absl.testing import absltest
import yaml

from tests.house import tree


def _text(path: str) -> str:
  return (tree.ROOT / path).read_text(encoding='utf-8')


class PreCommitTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    (repository,) = yaml.safe_load(_text('.pre-commit-config.yaml'))['repos']
    self.assertEqual(repository['repo'], 'local')
    self._hooks = {hook['id']: hook for hook in repository['hooks']}

  def test_versions_are_those_of_the_locks(self):
    locks = ''.join(
      _text(f'third_party/python/{name}.lock')
      for name in ('lint', 'requirements')
    )
    npm = _text('third_party/lint/npm_package.bzl')
    version = re.search(r'version = "([\d.]+)"', npm)[1]
    for name, hook in self._hooks.items():
      (package,) = hook['additional_dependencies']
      with self.subTest(name):
        if hook['language'] == 'node':
          self.assertEqual(package, f'@bazel/buildifier@{version}')
        else:
          self.assertRegex(locks, rf'(?m)^{re.escape(package)} ')

  def test_modules_of_hooks_exist(self):
    modules = [
      words[2]
      for hook in self._hooks.values()
      if (words := hook['entry'].split())[0] == 'python'
    ]
    self.assertLen(modules, 2)
    for module in modules:
      path = tree.ROOT / module.replace('.', '/')
      self.assertTrue(path.with_suffix('.py').is_file(), module)

  def test_buildifier_reads_all_files_that_the_lint_reads(self):
    pattern = self._hooks['buildifier']['files']
    for path in ('BUILD', 'docs/BUILD', 'MODULE.bazel', 'WORKSPACE', 'a/b.bzl'):
      self.assertRegex(path, pattern)
    for path in ('BUILD.upstream', 'docs/cell.md'):
      self.assertNotRegex(path, pattern)


if __name__ == '__main__':
  absltest.main()
