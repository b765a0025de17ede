"""Tests of files on local paths."""

import os
import pathlib
import stat
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.common import storage


class StorageTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.dir = self.create_tempdir().full_path

  def test_round_trip(self):
    path = os.path.join(self.dir, 'a')
    storage.write_bytes(path, b'one')
    storage.write_bytes(path, b'two\0')
    self.assertEqual(storage.read_bytes(path), b'two\0')
    self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o644)
    self.assertEqual(storage.list_dir(self.dir), ['a'])

  def test_failed_write_leaves_the_old_file(self):
    path = os.path.join(self.dir, 'a')
    storage.write_bytes(path, b'old')
    with mock.patch.object(os, 'fsync', side_effect=OSError(28, 'No space')):
      with self.assertRaisesRegex(OSError, 'No space'):
        storage.write_bytes(path, b'new')
    self.assertEqual(storage.read_bytes(path), b'old')
    self.assertEqual(storage.list_dir(self.dir), ['a'])

  def test_missing(self):
    path = os.path.join(self.dir, 'a')
    with self.assertRaisesRegex(errors.NotFound, 'no such file'):
      storage.read_bytes(path)
    with self.assertRaisesRegex(errors.NotFound, 'no such directory'):
      storage.list_dir(path)
    with self.assertRaisesRegex(errors.NotFound, 'no such directory'):
      storage.write_bytes(path + '/b', b'')
    self.assertFalse(storage.exists(path))
    self.assertFalse(storage.is_dir(path))

  def test_make_dirs_twice(self):
    path = os.path.join(self.dir, 'a', 'b')
    storage.make_dirs(path)
    storage.make_dirs(path)
    self.assertTrue(storage.is_dir(path))
    self.assertTrue(pathlib.Path(path).is_dir())

  def test_url_is_refused_with_a_remedy(self):
    for call in (storage.read_bytes, storage.exists, storage.make_dirs):
      with self.assertRaisesRegex(errors.Unimplemented, 'gs://b/p.*mount'):
        call('gs://b/p')


if __name__ == '__main__':
  absltest.main()
