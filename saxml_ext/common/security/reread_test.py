"""Tests for reread."""

import os
import threading

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.common.security import reread

_TIMEOUT = 60


def _number(data: bytes) -> int:
  if not data.isdigit():
    raise errors.InvalidArgument('it is no number')
  return int(data)


class RereadTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.create_tempdir().full_path, 'file')
    self.file = reread.Reread(self.path, _number, absent=-1, broken=-2)

  def write(self, data: bytes) -> None:
    with open(self.path, 'wb') as f:
      f.write(data)

  def read(self) -> int:
    self.file.refresh()
    return self.file.value

  def test_says_what_the_file_says(self):
    self.assertEqual(self.read(), -1)
    self.assertFalse(self.file.good)
    self.write(b'1')
    self.assertEqual(self.read(), 1)
    self.write(b'2')
    self.assertEqual(self.read(), 2)
    self.assertTrue(self.file.good)
    self.assertEqual(self.file.trouble, '')

  def test_keeps_what_was_good(self):
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

  def test_has_nothing_while_it_never_was_good(self):
    self.write(b'x')
    self.assertEqual(self.read(), -2)
    self.write(b'0' * (16 * 2**20 + 1))
    self.assertEqual(self.read(), -2)
    self.assertIn('above the limit', self.file.trouble)

  def test_says_the_same_trouble_once(self):
    self.write(b'x')
    with self.assertLogs(level='ERROR') as logged:
      for _ in range(3):
        self.read()
    self.assertLen(logged.output, 1)

  def test_follows_until_it_is_closed(self):
    seen = threading.Event()

    def parse(data: bytes) -> int:
      if data == b'2':
        seen.set()
      elif data == b'1':
        raise ZeroDivisionError('a mistake in this code must not end it')
      return 0

    self.write(b'1')
    file = reread.Reread(self.path, parse, absent=-1, broken=-2)
    file.follow(0.01)
    self.write(b'2')
    self.assertTrue(seen.wait(_TIMEOUT))
    file.close()


if __name__ == '__main__':
  absltest.main()
