"""Tests of API keys, and of the program that makes them."""

import os
import stat
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.common.security import api_key
from saxml_ext.common.security import api_keys


class ApiKeysTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.create_tempdir().full_path, 'keys')

  def open(self) -> api_keys.Keys:
    keys = api_keys.Keys(self.path)
    self.addCleanup(keys.close)
    return keys

  def test_key_identifies_its_owner(self):
    alice, bob = api_key.add(self.path, 'alice'), api_key.add(self.path, 'bob')
    keys = self.open()
    self.assertEqual(keys.name(alice), 'alice')
    self.assertEqual(keys.name(bob), 'bob')
    last = 'A' if alice[-1] != 'A' else 'B'
    # This key has the salt of one key and the secret of the other.
    mixed = alice[:31] + bob[31:]
    for wrong in ('', 'sk-', alice[:-1], alice[:-1] + last, mixed, alice + 'a'):
      self.assertIsNone(keys.name(wrong))

  def test_file_contains_no_plain_keys(self):
    key = api_key.add(self.path, 'alice')
    with open(self.path, encoding='ascii') as f:
      text = f.read()
    self.assertRegex(text, r'^alice [0-9a-f]{24} [0-9a-f]{64}\n$')
    self.assertNotIn(key[31:], text)
    self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)

  def test_keys_are_added_and_revoked_without_a_restart(self):
    first = api_key.add(self.path, 'alice')
    keys = self.open()
    second = api_key.add(self.path, 'alice')
    self.assertIsNone(keys.name(second))
    keys.refresh()
    self.assertEqual(keys.name(first), 'alice')
    self.assertEqual(keys.name(second), 'alice')
    self.assertEqual(api_key.names(self.path), ['alice', 'alice'])
    self.assertEqual(api_key.revoke(self.path, 'alice'), 2)
    keys.refresh()
    self.assertIsNone(keys.name(first))
    with self.assertRaises(errors.NotFound):
      api_key.revoke(self.path, 'alice')

  def test_changed_file_is_reread(self):
    first = api_key.add(self.path, 'alice')
    with mock.patch.object(api_keys, '_INTERVAL', 0.05):
      keys = self.open()
    second = api_key.add(self.path, 'bob')
    end = time.monotonic() + 60
    while keys.name(second) != 'bob':
      self.assertLess(time.monotonic(), end, 'the new key never counted')
      time.sleep(0.01)
    api_key.revoke(self.path, 'alice')
    while keys.name(first) is not None:
      self.assertLess(time.monotonic(), end, 'the revoked key went on to count')
      time.sleep(0.01)

  def test_old_keys_apply_while_the_file_is_broken(self):
    key = api_key.add(self.path, 'alice')
    keys = self.open()
    with open(self.path, 'a', encoding='ascii') as f:
      f.write(f'bob {key}\n')
    with self.assertLogs(level='ERROR') as logged:
      keys.refresh()
    self.assertEqual(keys.name(key), 'alice')
    self.assertIn('line 2 is not', logged.output[0])
    self.assertNotIn(key, logged.output[0])
    with self.assertRaisesRegex(errors.InvalidArgument, 'line 2'):
      api_key.add(self.path, 'carol')

  def test_start_requires_a_valid_file(self):
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'the file does not exist'
    ):
      api_keys.Keys(self.path)
    with open(self.path, 'w', encoding='ascii') as f:
      f.write('nonsense\n')
    with self.assertRaisesRegex(errors.InvalidArgument, 'line 1'):
      api_keys.Keys(self.path)

  @parameterized.parameters('', 'a b', 'a\n', 'é')
  def test_special_characters_in_names_are_refused(self, name: str):
    with self.assertRaisesRegex(errors.InvalidArgument, 'is not a name'):
      api_key.add(self.path, name)

  def test_comments_and_empty_lines_are_ignored(self):
    key, line = api_keys.make('alice')
    del key
    keys = api_keys.parse(f'# who\n\n{line}\n'.encode())
    self.assertEqual([item.name for item in keys.values()], ['alice'])
    with self.assertRaisesRegex(errors.InvalidArgument, 'salt of another'):
      api_keys.parse(f'{line}\n{line}\n'.encode())


if __name__ == '__main__':
  absltest.main()
