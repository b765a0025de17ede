"""Tests .ci/release on a stand-in for Bazel, and the workflow that calls it."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

from absl.testing import absltest
import yaml

from tests.house import tree

_BAZELW = """#!/bin/sh
echo "$@" >>calls
test "$1" = query && echo //deploy/images:sax_util && exit
mkdir -p bazel-bin/deploy/wheel bazel-bin/deploy/images
for name in gptj_sax-1.2.0-py3 gptj_sax_client-1.2.0-py3 gptj_sax-1.1.0-py3; do
  echo $name >bazel-bin/deploy/wheel/$name.whl
done
for name in sax_util sax_util_elsewhere; do
  echo image >bazel-bin/deploy/images/$name.tar
done
chmod -R a-w bazel-bin/deploy/*/*
"""
_CHANGES = '# Changes\n\n## 1.2.0\n\n* New.\n\n## 1.1.0\n\n* Old.\n'


class ReleaseTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = pathlib.Path(self.create_tempdir().full_path)
    self._out = self._root / 'out'
    for folder in ('.ci', 'deploy'):
      (self._root / folder).mkdir()
    shutil.copy(tree.ROOT / '.ci/release', self._root / '.ci/release')
    self._write('deploy/version.bzl', 'VERSION = "1.2.0"\n')
    self._write('CHANGELOG.md', _CHANGES)
    self._write('bazelw', _BAZELW)
    (self._root / 'bazelw').chmod(0o755)

  def _write(self, path: str, text: str) -> None:
    (self._root / path).write_text(text, encoding='utf-8')

  def _run(self, *parts: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
      [self._root / '.ci/release', self._out, *parts],
      env={'PATH': os.environ['PATH'], **env},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )

  def test_files_of_the_version_have_checksums(self):
    run = self._run(RELEASE_TAG='v1.2.0')
    self.assertEqual(run.returncode, 0, run.stdout)
    names = [
      'NOTES.md',
      'gptj_sax-1.2.0-py3.whl',
      'gptj_sax_client-1.2.0-py3.whl',
      f'sax_util-1.2.0-{os.uname().machine}.tar',
    ]
    sums = (self._out / 'SHA256SUMS').read_text('utf-8')
    self.assertEndsWith(run.stdout, sums)
    lines = dict(line.split()[::-1] for line in sums.splitlines())
    self.assertCountEqual(lines, names)
    for name in names:
      content = (self._out / name).read_bytes()
      self.assertEqual(lines[name], hashlib.sha256(content).hexdigest())
    notes = (self._out / 'NOTES.md').read_text('utf-8')
    self.assertEqual(notes.strip(), '* New.')

  def test_only_the_chosen_part_is_built(self):
    self.assertEqual(self._run('wheels').returncode, 0)
    calls = (self._root / 'calls').read_text('utf-8')
    self.assertEqual(calls, 'build //:wheel //:client_wheel\n')
    self.assertEmpty(list(self._out.glob('*.tar')))

  def test_mistakes_are_reported(self):
    run = self._run(RELEASE_TAG='v1.3.0')
    self.assertEqual(run.returncode, 1)
    self.assertIn('tag is v1.3.0, but the version', run.stdout)
    run = self._run('docs')
    self.assertEqual(run.returncode, 1)
    self.assertIn('The part docs is unknown', run.stdout)
    self._write('CHANGELOG.md', '# Changes\n\n## 1.2.01\n\n* Other.\n')
    run = self._run()
    self.assertEqual(run.returncode, 1)
    self.assertIn('CHANGELOG.md has no section ## 1.2.0', run.stdout)
    self._write('CHANGELOG.md', _CHANGES)
    (self._out / 'other').touch()
    run = self._run()
    self.assertEqual(run.returncode, 1)
    self.assertIn('is not empty', run.stdout)
    self.assertFalse((self._root / 'calls').exists())


class WorkflowTest(absltest.TestCase):
  def test_tags_start_the_script(self):
    path = tree.ROOT / '.github/workflows/release.yml'
    text = path.read_text(encoding='utf-8')
    (job,) = yaml.safe_load(text)['jobs'].values()
    self.assertIn('tags: ["v*"]', text)
    self.assertEqual(job['env']['RELEASE_TAG'], '${{ github.ref_name }}')
    commands = [step.get('run', '') for step in job['steps']]
    self.assertIn('.ci/release /tmp/release', commands)
    published = set(re.findall(r'/tmp/release/(\S+)', commands[-1]))
    self.assertEqual(published, {'NOTES.md', '*.whl', '*.tar', 'SHA256SUMS'})


if __name__ == '__main__':
  absltest.main()
