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

  def test_other_urls_are_refused(self):
    for path in ('', 'ftp://b/p', 'gs:///p', 's3://b/a/../c', 'gs://b/a//c'):
      for call in (storage.read_bytes, storage.exists, storage.make_dirs):
        with self.assertRaisesRegex(errors.InvalidArgument, 'path'):
          call(path)

  def test_a_whole_bucket_is_never_deleted(self):
    for path in ('gs://bucket', 'gs://bucket/', 's3://bucket//'):
      with self.assertRaisesRegex(errors.InvalidArgument, 'whole bucket'):
        storage.delete(path)

  def test_deletes_files_trees_and_what_is_not_there(self):
    storage.make_dirs(f'{self.dir}/a/b')
    storage.write_bytes(f'{self.dir}/a/b/c', b'1')
    storage.write_bytes(f'{self.dir}/d', b'2')
    self.assertEqual(storage.list_tree(self.dir), ['a/b/c', 'd'])
    for name in ('a', 'd', 'e'):
      storage.delete(f'{self.dir}/{name}')
    self.assertEqual(storage.list_dir(self.dir), [])

  def test_of_writers_that_start_from_one_version_one_wins(self):
    path = f'{self.dir}/a'
    self.assertEqual(
      storage.read_versioned(path), storage.Versioned(None, storage.ABSENT)
    )
    first = storage.write_if(path, b'1', storage.ABSENT)
    with self.assertRaisesRegex(errors.Aborted, 'read it again'):
      storage.write_if(path, b'2', storage.ABSENT)
    self.assertEqual(
      storage.read_versioned(path), storage.Versioned(b'1', first)
    )
    second = storage.write_if(path, b'3', first)
    with self.assertRaises(errors.Aborted):
      storage.write_if(path, b'4', first)
    self.assertEqual(storage.read_versioned(path).version, second)
    self.assertEqual(storage.read_bytes(path), b'3')
    self.assertEqual(storage.list_dir(self.dir), ['a'])


if __name__ == '__main__':
  absltest.main()
