"""Tests of source records, which detect changed files."""

import os

from absl.testing import absltest
from absl.testing import parameterized

from converters.convert import conversion
from saxml_ext.pax import errors


class FingerprintTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.create_tempdir().full_path, 'file')

  def write(self, data: bytes) -> str:
    with open(self.path, 'wb') as f:
      f.write(data)
    return conversion._fingerprint(self.path)

  @parameterized.parameters(0, 1, 1 << 16, 5 << 20)
  def test_ends_and_size_count(self, size):
    data = bytearray(size)
    first = self.write(data)
    self.assertEqual(self.write(data), first)
    self.assertNotEqual(self.write(data + b'\0'), first)
    for index in (0, -1)[: 2 if size else 0]:
      changed = bytearray(data)
      changed[index] = 1
      self.assertNotEqual(self.write(changed), first)

  def test_source_differs_by_options_and_times(self):
    self.write(b'1')
    one = conversion.source_record([self.path], dtype='float32')
    self.assertEqual(list(one.files), ['file'])
    self.assertEqual(
      conversion.source_record([self.path], dtype='float32'), one
    )
    other = conversion.source_record([self.path], dtype='bfloat16')
    self.assertNotEqual(other, one)
    os.utime(self.path, (1, 1))
    touched = conversion.source_record([self.path], dtype='float32')
    self.assertEqual(touched.document(), one.document())
    self.assertNotEqual(touched, one)

  def test_missing_checkpoint_is_an_error(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'cannot be read'):
      conversion.source_record([self.path])


if __name__ == '__main__':
  absltest.main()
