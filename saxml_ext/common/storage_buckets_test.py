"""Tests of files in buckets, against emulators of both kinds."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.common import kvstore
from saxml_ext.common import net
from saxml_ext.common import storage
from saxml_ext.common.testing import bucket_emulators

_KINDS = ('gs', 's3')


class StorageBucketsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.buckets = cls.enterClassContext(bucket_emulators.running())

  def directory(self, kind: str) -> str:
    return f'{self.buckets[kind]}/{self.id()}'.replace('(', '').replace(')', '')

  @parameterized.parameters(*_KINDS)
  def test_round_trip(self, kind):
    path = f'{self.directory(kind)}/a/b'
    storage.make_dirs(self.directory(kind))
    storage.write_bytes(path, b'one')
    storage.write_bytes(path, b'two\0')
    self.assertEqual(storage.read_bytes(path), b'two\0')

  @parameterized.parameters(*_KINDS)
  def test_name_prefix_is_a_directory(self, kind):
    top = self.directory(kind)
    for name in ('a/b/c', 'a/d', 'ab', 'e'):
      storage.write_bytes(f'{top}/{name}', b'1')
    self.assertEqual(storage.list_dir(top), ['a', 'ab', 'e'])
    self.assertEqual(storage.list_dir(f'{top}/a/'), ['b', 'd'])
    self.assertEqual(storage.list_tree(f'{top}/a'), ['b/c', 'd'])
    self.assertTrue(storage.is_dir(f'{top}/a'))
    self.assertFalse(storage.is_dir(f'{top}/e'))
    self.assertTrue(storage.exists(f'{top}/e'))
    self.assertTrue(storage.exists(f'{top}/a'))
    self.assertFalse(storage.exists(f'{top}/f'))

  @parameterized.parameters(*_KINDS)
  def test_delete_removes_only_the_tree(self, kind):
    top = self.directory(kind)
    for name in ('a/b/c', 'a/d', 'ab'):
      storage.write_bytes(f'{top}/{name}', b'1')
    storage.delete(f'{top}/a')
    self.assertEqual(storage.list_tree(top), ['ab'])
    storage.delete(f'{top}/ab')
    storage.delete(f'{top}/ab')
    with self.assertRaisesRegex(errors.NotFound, 'no object'):
      storage.list_dir(top)
    with self.assertRaisesRegex(errors.NotFound, 'no such object'):
      storage.read_bytes(f'{top}/ab')

  def test_one_of_several_writers_of_a_version_succeeds(self):
    path = f'{self.directory("s3")}/a'
    self.assertEqual(
      storage.read_versioned(path), storage.Versioned(None, storage.ABSENT)
    )
    first = storage.write_if(path, b'1', storage.ABSENT)
    with self.assertRaisesRegex(errors.Aborted, 'Read it again'):
      storage.write_if(path, b'2', storage.ABSENT)
    second = storage.write_if(path, b'3', first)
    with self.assertRaises(errors.Aborted):
      storage.write_if(path, b'4', first)
    self.assertEqual(
      storage.read_versioned(path), storage.Versioned(b'3', second)
    )

  def test_missing_bucket_is_an_error(self):
    with self.assertRaisesRegex(errors.Unavailable, 'NoSuchBucket|404'):
      storage.write_bytes('s3://no-such-bucket/a', b'1')

  def test_unreachable_server_is_an_error(self):
    nowhere = {'AWS_ENDPOINT_URL': f'http://127.0.0.1:{net.pick_free_port()}'}
    once = {'max_retries': 1, 'initial_delay': '1ms', 'max_delay': '1ms'}
    with (
      mock.patch.dict(os.environ, nowhere),
      mock.patch.object(kvstore, '_RETRIES', once),
    ):
      with self.assertRaisesRegex(errors.Unavailable, 'is reachable'):
        storage.read_bytes('s3://test-bucket/a')


if __name__ == '__main__':
  absltest.main()
