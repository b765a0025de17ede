"""Tests that two builds of an image in two directories have the same bytes.

The image is the argument of the test. //deploy/images:sax_util_reproducible_test
is part of //... . That of the model server for TPUs takes minutes:

  ./bazelw test --config=tpu //deploy/images:sax_model_server_reproducible_test
"""

import hashlib
import pathlib
import sys
import tarfile

from absl.testing import absltest

_FOLDER = pathlib.Path(__file__).parent


class ReproducibleTest(absltest.TestCase):
  def test_builds_in_two_directories_have_the_same_bytes(self):
    one = _FOLDER / f'{_image}.tar'
    other = _FOLDER / f'{_image}_elsewhere.tar'
    self.assertNotEqual(one.resolve().parents, other.resolve().parents)
    self.assertEqual(_contents(one), _contents(other))
    self.assertEqual(_digest(one), _digest(other))


def _contents(archive: pathlib.Path) -> list[str]:
  """Returns the names of the parts. Those of blobs are their digests."""
  with tarfile.open(archive) as tar:
    return tar.getnames()


def _digest(path: pathlib.Path) -> str:
  with path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


if __name__ == '__main__':
  _image = sys.argv.pop(1)
  absltest.main()
