"""Tests the workflows that a public host runs at each push and each night."""

import os
import re

from absl.testing import absltest
import yaml

from tests.house import starlark_program
from tests.house import targets
from tests.house import tree

_ACTION = re.compile(r'actions/checkout@[0-9a-f]{40}')
_LABEL = re.compile(r'//\S+')
_SCRIPT = re.compile(r'(?<!\S)\.?\.?/?(\.ci/run|bazelw)(?!\S)')


class WorkflowTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._jobs = _jobs('ci')
    jobs = [*self._jobs.values(), *_jobs('nightly').values()]
    self._steps = [step for job in jobs for step in job['steps']]

  def test_no_action_but_a_pinned_checkout(self):
    used = [step['uses'] for step in self._steps if 'uses' in step]
    self.assertLen(used, len(self._jobs) + 1)
    for action in used:
      self.assertRegex(action, _ACTION)

  def test_labels_and_scripts_exist(self):
    commands = [step['run'] for step in self._steps if 'run' in step]
    labels = set(_LABEL.findall(' '.join(commands)))
    self.assertContainsSubset({'//...', '//harness:offline'}, labels)
    for label in labels:
      if label.endswith('/...'):
        folder = tree.ROOT / label.removeprefix('//').removesuffix('...')
        self.assertTrue(folder.is_dir(), label)
      else:
        self.assertIn(label, targets.targets())
    scripts = set(_SCRIPT.findall('\n'.join(commands)))
    self.assertEqual(scripts, {'.ci/run', 'bazelw'})

  def test_folders_of_nightly_tests_exist(self):
    # PyYAML reads the key `on` as a truth value.
    events = _document('nightly')[True]
    for path in events['pull_request']['paths']:
      folder = tree.ROOT / path.removesuffix('/**')
      self.assertTrue(folder.is_dir(), path)

  def test_newer_bazel_is_one_that_the_module_allows(self):
    module = starlark_program.Program('MODULE.bazel').arguments('module')[0]
    oldest, refused = module['bazel_compatibility']
    versions = self._jobs['newer-bazel']['strategy']['matrix']['bazel']
    self.assertEqual({text.split('.')[0] for text in versions}, {'8', '9'})
    for text in versions:
      self.assertGreaterEqual(_parts(text), _parts(oldest.removeprefix('>=')))
      self.assertNotEqual(text, refused.removeprefix('-'))

  def test_scripts_can_be_started(self):
    self.assertTrue(os.access(tree.ROOT / 'bazelw', os.X_OK))


def _document(name: str) -> dict:
  path = tree.ROOT / '.github' / 'workflows' / f'{name}.yml'
  return yaml.safe_load(path.read_text('utf-8'))


def _jobs(name: str) -> dict[str, dict]:
  return _document(name)['jobs']


def _parts(version: str) -> list[int]:
  return [int(part) for part in version.split('.')]


if __name__ == '__main__':
  absltest.main()
