import os
import pathlib
import shutil
import subprocess
import unittest
from unittest import mock

from absl.testing import absltest

from harness.submission.content import source_code

_IDENTITY = ('-c', 'user.name=A', '-c', 'user.email=a@example.org')


@unittest.skipUnless(shutil.which('git'), 'There is no git here.')
class CodeTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.enter_context(
      mock.patch.dict(os.environ, {'BUILD_WORKSPACE_DIRECTORY': str(self.root)})
    )
    for path in (
      'harness/network/client.py',
      'harness/network/client_test.py',
      'harness/network/testing/fake.py',
      'harness/network/dispatch.proto',
      'harness/network/BUILD',
      'harness/network/weights.safetensors',
      'docs/page.py',
    ):
      (self.root / path).parent.mkdir(parents=True, exist_ok=True)
      (self.root / path).write_text('old')
    (self.root / 'harness/__init__.py').touch()
    self.git('init', '-q')
    self.git('add', '.')
    self.git('commit', '-qm', 'one')

  def git(self, *arguments: str) -> str:
    done = subprocess.run(
      ['git', *_IDENTITY, *arguments],
      cwd=self.root,
      check=True,
      capture_output=True,
      encoding='utf-8',
    )
    return done.stdout.strip()

  def test_sources_of_the_results_commit(self):
    commit = self.git('rev-parse', 'HEAD')
    (self.root / 'harness/network/client.py').write_text('new')
    sources = source_code.files(commit)
    self.assertEqual(
      sources,
      {
        'harness/network/client.py': b'old',
        'harness/network/dispatch.proto': b'old',
        'harness/network/BUILD': b'old',
      },
    )
    # Files that were changed have no commit.
    for other in (f'{commit}-dirty', '', '0' * 40):
      sources = source_code.files(other)
      self.assertLen(sources, 3)
      self.assertEqual(sources['harness/network/client.py'], b'new')


if __name__ == '__main__':
  absltest.main()
