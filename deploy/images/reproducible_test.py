"""Tests that two builds of a file in two directories have the same bytes.

The arguments of the test are the paths of both. The image of sax_util and the
kernels of the model server are part of //... . The whole image of the model
server for TPUs takes minutes:

  ./bazelw test --config=tpu //deploy/images:sax_model_server_reproducible_test
"""

import hashlib
import pathlib
import sys
import tarfile

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).parents[2]


class ReproducibleTest(absltest.TestCase):
  def test_builds_in_two_directories_have_the_same_bytes(self):
    one, other = (_ROOT / path for path in _paths)
    self.assertNotEqual(one.resolve().parents, other.resolve().parents)
    if tarfile.is_tarfile(one):
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
  _paths = sys.argv.pop(1), sys.argv.pop(1)
  absltest.main()
