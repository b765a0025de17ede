"""Tests of the claims and the write fence of a shared directory."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.admin.leadership import shared_dir
from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.common.testing import bucket_emulators


class SharedDirTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.buckets = cls.enterClassContext(bucket_emulators.running())

  def pair(self, kind: str) -> list[shared_dir.SharedDir]:
    """Returns the views of two admin servers of one directory."""
    if kind == 'local':
      path = self.create_tempdir().full_path
    else:
      path = f'{self.buckets[kind]}/{self._testMethodName}'
    return [shared_dir.open_dir(path) for _ in range(2)]

  # The emulator of Google Cloud Storage does not support conditional writes.
  @parameterized.parameters('local', 's3')
  def test_epoch_is_claimed_once(self, kind):
    first, second = self.pair(kind)
    self.assertEqual(first.newest(), shared_dir.Claim())
    self.assertTrue(first.claim(1, 'a 1'))
    self.assertFalse(second.claim(1, 'b 1'))
    self.assertEqual(second.newest().epoch, 1)
    self.assertStartsWith(second.newest().text, 'a 1')
    self.assertFalse(second.newest().abandoned)
    first.renew(1, 'a 2')
    self.assertStartsWith(second.newest().text, 'a 2')
    first.resign(1)
    self.assertTrue(second.newest().abandoned)

  @parameterized.parameters('local', 's3')
  def test_former_leader_cannot_write(self, kind):
    old, new = self.pair(kind)
    self.assertTrue(old.claim(1, 'a'))
    old.take_over(1)
    old.read('f')
    old.write('f', b'1', 1)
    old.write('f', b'2', 1)
    self.assertTrue(new.claim(2, 'b'))
    new.take_over(2)
    self.assertEqual(new.read('f'), b'2')
    new.write('f', b'3', 2)
    with self.assertRaises(errors.Aborted):
      old.write('f', b'4', 1)
    new.write('f', b'5', 2)
    self.assertEqual(old.read('f'), b'5')

  def test_local_writer_stopped_before_its_rename_is_shut_out(self):
    old, new = self.pair('local')
    self.assertTrue(old.claim(1, 'a'))
    old.write('f', b'1', 1)
    looked = old.newest_epoch

    def look_and_be_overtaken():
      result = looked()
      self.assertTrue(new.claim(2, 'b'))
      new.take_over(2)
      return result

    with mock.patch.object(old, 'newest_epoch', look_and_be_overtaken):
      with self.assertRaisesRegex(
        errors.Aborted, 'deleted its unfinished files'
      ):
        old.write('f', b'2', 1)
    self.assertEqual(new.read('f'), b'1')
    self.assertNotIn('.tmp', ' '.join(os.listdir(new.path)))

  def test_deleted_claim_cannot_be_taken_again(self):
    slow, fast = self.pair('local')
    for epoch in (1, 2):
      self.assertTrue(fast.claim(epoch, 'b'))
      fast.take_over(epoch)
    self.assertFalse(slow.claim(1, 'a'))
    self.assertEqual(slow.newest().epoch, 2)

  def test_lost_answer_of_a_bucket_write_is_resolved(self):
    first, _ = self.pair('s3')
    first.claim(1, 'a')
    first.write('f', b'1', 1)
    real = storage.write_if

    def write_and_lose_the_answer(*args):
      real(*args)
      raise errors.Unavailable('connection lost')

    with mock.patch.object(storage, 'write_if', write_and_lose_the_answer):
      with self.assertRaises(errors.Unavailable):
        first.write('f', b'2', 1)
    first.write('f', b'3', 1)
    self.assertEqual(first.read('f'), b'3')

  def test_bucket_write_of_another_process_is_kept(self):
    first, _ = self.pair('s3')
    first.claim(1, 'a')
    first.write('f', b'1', 1)
    storage.write_bytes(f'{first.path}/f', b'stock')
    with self.assertRaises(errors.Aborted):
      first.write('f', b'2', 1)
    self.assertEqual(first.read('f'), b'stock')


if __name__ == '__main__':
  absltest.main()
