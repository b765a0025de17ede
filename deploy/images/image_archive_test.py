"""Tests of the archive's names, labels and variables."""

import json
import pathlib
import subprocess
import sys
import tarfile
from typing import Any

from absl.testing import absltest

from deploy.images import image_archive
from deploy.images import layer
from saxml_ext.common import program

_COMMIT = '8d3aa0791964605182055c210557cee309927bba'
_HOST = 'BUILD_EMBED_LABEL \nBUILD_HOST {host}\nBUILD_USER {host}\n'


class ImageArchiveTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.create_tempdir().full_path)
    self.layer = self.directory / 'layer.tar.gz'
    layer.write(self.layer, {'a': layer.File(b'a')})

  def _build(self, status: str) -> pathlib.Path:
    path = self.directory / 'status.txt'
    path.write_text(status)
    archive = self.directory / 'image.tar'
    subprocess.run(
      [
        *(sys.executable, '-m', image_archive.__name__),
        *('--name=sax-x', f'--layer={self.layer}', f'--archive={archive}'),
        *(f'--status={path}', '--entrypoint=x'),
      ],
      check=True,
      cwd=pathlib.Path(image_archive.__file__).parents[2],
    )
    return archive

  def _config(self, archive: pathlib.Path) -> dict[str, Any]:
    (described,) = _json(archive, 'manifest.json')
    return _json(archive, described['Config'])['config']

  def test_labels_have_version_and_commit(self):
    archive = self._build(f'BUILD_HOST x\nSTABLE_REVISION {_COMMIT}-dirty\n')
    config = self._config(archive)
    labels = config['Labels']
    self.assertEqual(
      labels['org.opencontainers.image.revision'], f'{_COMMIT}-dirty'
    )
    self.assertEqual(
      labels['org.opencontainers.image.version'], program.VERSION
    )
    self.assertIn(f'{program.COMMIT_VARIABLE}={_COMMIT}-dirty', config['Env'])

  def test_unknown_commit_has_no_label(self):
    config = self._config(self._build('BUILD_HOST x\n'))
    self.assertNotIn('org.opencontainers.image.revision', config['Labels'])
    self.assertNotIn(program.COMMIT_VARIABLE, ' '.join(config['Env']))

  def test_version_is_a_tag(self):
    (described,) = _json(self._build(''), 'manifest.json')
    self.assertEqual(
      described['RepoTags'], ['sax-x:latest', f'sax-x:{program.VERSION}']
    )

  def test_same_commit_gives_the_same_bytes_on_any_machine(self):
    line = f'STABLE_REVISION {_COMMIT}\n'
    one, other = (
      self._build(_HOST.format(host=host) + line).read_bytes()
      for host in ('here', 'there')
    )
    self.assertEqual(one, other)


def _json(archive: pathlib.Path, name: str) -> Any:
  with tarfile.open(archive) as tar:
    file = tar.extractfile(name)
    assert file is not None, name
    return json.load(file)


if __name__ == '__main__':
  absltest.main()
