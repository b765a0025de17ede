"""Tests of files on local paths."""

import os
import pathlib
import stat
import threading
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

  def test_missing_file_is_an_error(self):
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

  def test_delete_removes_files_trees_and_ignores_missing_ones(self):
    storage.make_dirs(f'{self.dir}/a/b')
    storage.write_bytes(f'{self.dir}/a/b/c', b'1')
    storage.write_bytes(f'{self.dir}/d', b'2')
    self.assertEqual(storage.list_tree(self.dir), ['a/b/c', 'd'])
    for name in ('a', 'd', 'e'):
      storage.delete(f'{self.dir}/{name}')
    self.assertEqual(storage.list_dir(self.dir), [])

  def test_one_of_several_writers_of_a_version_succeeds(self):
    path = f'{self.dir}/a'
    self.assertEqual(
      storage.read_versioned(path), storage.Versioned(None, storage.ABSENT)
    )
    first = storage.write_if(path, b'1', storage.ABSENT)
    with self.assertRaisesRegex(errors.Aborted, 'Read it again'):
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


_TIMEOUT = 60


def _number(data: bytes) -> int:
  if not data.isdigit():
    raise errors.InvalidArgument('it is no number')
  return int(data)


class RereadTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.create_tempdir().full_path, 'file')
    self.file = storage.Reread(self.path, _number, absent=-1, broken=-2)

  def write(self, data: bytes) -> None:
    with open(self.path, 'wb') as f:
      f.write(data)

  def read(self) -> int:
    self.file.refresh()
    return self.file.value

  def test_value_follows_the_file(self):
    self.assertEqual(self.read(), -1)
    self.assertFalse(self.file.good)
    self.write(b'1')
    self.assertEqual(self.read(), 1)
    self.write(b'2')
    self.assertEqual(self.read(), 2)
    self.assertTrue(self.file.good)
    self.assertEqual(self.file.trouble, '')

  def test_last_valid_value_is_kept(self):
    self.write(b'1')
    self.read()
    for spoil in (
      lambda: self.write(b'x'),
      lambda: os.remove(self.path),
      lambda: os.mkdir(self.path),
    ):
      spoil()
      self.assertEqual(self.read(), 1)
      self.assertNotEmpty(self.file.trouble)
    os.rmdir(self.path)
    self.write(b'1')
    self.assertEqual(self.read(), 1)
    self.assertEqual(self.file.trouble, '')

  def test_value_is_missing_until_the_file_is_valid(self):
    self.write(b'x')
    self.assertEqual(self.read(), -2)
    self.write(b'0' * (16 * 2**20 + 1))
    self.assertEqual(self.read(), -2)
    self.assertIn('above the limit', self.file.trouble)

  def test_repeated_error_is_logged_once(self):
    self.write(b'x')
    with self.assertLogs(level='ERROR') as logged:
      for _ in range(3):
        self.read()
    self.assertLen(logged.output, 1)

  def test_file_is_followed_until_close(self):
    seen = threading.Event()

    def parse(data: bytes) -> int:
      if data == b'2':
        seen.set()
      elif data == b'1':
        raise ZeroDivisionError('a mistake in this code must not end it')
      return 0

    self.write(b'1')
    file = storage.Reread(self.path, parse, absent=-1, broken=-2)
    file.follow(0.01)
    self.write(b'2')
    self.assertTrue(seen.wait(_TIMEOUT))
    file.close()


if __name__ == '__main__':
  absltest.main()
