"""Tests of bucket writes with a lost response, over local files."""

from unittest import mock

from absl.testing import absltest

from saxml_ext.admin.leadership import shared_dir
from saxml_ext.common import errors
from saxml_ext.common import storage


class LostAnswerTest(absltest.TestCase):
  """A store makes a write, and then reports that it failed.

  This happens in buckets, if a lower layer retries a write whose response was
  lost. Conditional writes to local files fail in the same way.
  """

  def setUp(self):
    super().setUp()
    self.dir = shared_dir.BucketDir(self.create_tempdir().full_path)
    self.assertTrue(self.dir.claim(1, 'a'))
    self.dir.write('f', b'1', 1)

  def write(self, data: bytes, written: bytes) -> None:
    """Tries to write `data`; the store writes `written` and then fails."""
    real = storage.write_if

    def write_and_refuse(path, unused_data, version):
      real(path, written, version)
      raise errors.Aborted('of another version by now')

    with mock.patch.object(storage, 'write_if', write_and_refuse):
      self.dir.write('f', data, 1)

  def test_write_with_a_lost_answer_succeeds(self):
    self.write(b'2', written=b'2')
    self.assertEqual(self.dir.read('f'), b'2')
    # This works because the version of the first write is known as well.
    self.dir.write('f', b'3', 1)
    self.assertEqual(self.dir.read('f'), b'3')

  def test_write_by_another_process_fails(self):
    with self.assertRaises(errors.Aborted):
      self.write(b'2', written=b'stock')
    self.assertEqual(self.dir.read('f'), b'stock')


if __name__ == '__main__':
  absltest.main()
