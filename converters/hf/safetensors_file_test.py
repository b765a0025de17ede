"""Tests of reading valid and malicious safetensors files."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np
from safetensors import numpy as safetensors_numpy

from converters.hf import safetensors_file
from saxml_ext.pax import errors


def _raw(header, data: bytes = b'', length: int | None = None) -> bytes:
  text = header if isinstance(header, bytes) else json.dumps(header).encode()
  size = len(text) if length is None else length
  return size.to_bytes(8, 'little') + text + data


def _tensor(dtype='F32', shape=(2,), offsets=(0, 8)):
  return {'dtype': dtype, 'shape': list(shape), 'data_offsets': list(offsets)}


class SafetensorsFileTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.create_tempdir().full_path, 'm.safetensors')

  def open(self, data: bytes) -> safetensors_file.SafetensorsFile:
    with open(self.path, 'wb') as f:
      f.write(data)
    return safetensors_file.SafetensorsFile(self.path)

  @parameterized.parameters(
    np.float32, np.float16, np.int64, np.uint8, bool, ml_dtypes.bfloat16
  )
  def test_reads_files_of_the_library(self, dtype):
    tensors = {
      'a': np.arange(6).reshape(2, 3).astype(dtype),
      'b': np.ones((), dtype),
      'empty': np.zeros((0, 4), dtype),
    }
    file = self.open(safetensors_numpy.save(tensors, {'format': 'pt'}))
    self.assertEqual(file.shapes, {'a': (2, 3), 'b': (), 'empty': (0, 4)})
    for name, value in tensors.items():
      self.assertEqual(file.read(name).dtype, value.dtype)
      np.testing.assert_array_equal(file.read(name), value)

  @parameterized.named_parameters(
    ('short', b'abc', 'header claims'),
    ('oversize_header', _raw({}, length=1 << 60), 'header claims 11529'),
    ('header_beyond_file', _raw({}, length=3), 'header claims 3 bytes'),
    ('no_json', _raw(b'{"a":'), 'header is not JSON'),
    ('no_object', _raw([1]), 'not a JSON object'),
    ('object_dtype', _raw({'a': _tensor('OBJ')}, bytes(8)), 'tensor a is'),
    ('no_dtype', _raw({'a': {'shape': [2]}}, bytes(8)), 'tensor a is'),
    (
      'negative',
      _raw({'a': _tensor(shape=(-2,))}, bytes(8)),
      'Expected `int` >= 0',
    ),
    (
      'fraction',
      _raw({'a': _tensor(shape=(2.0,))}, bytes(8)),
      'Expected `int`, got `float`',
    ),
    (
      'beyond_end',
      _raw({'a': _tensor(offsets=(4, 12))}, bytes(8)),
      'bytes 4 to 12 of 8',
    ),
    (
      'wrong_size',
      _raw({'a': _tensor(shape=(1 << 40,))}, bytes(8)),
      'needs 4398046511104 bytes',
    ),
    (
      'overlap',
      _raw({'a': _tensor(), 'b': _tensor(offsets=(4, 12))}, bytes(12)),
      'tensors a and b overlap',
    ),
  )
  def test_bad_headers_are_refused(self, data, message):
    with self.assertRaisesRegex(errors.CheckpointError, message):
      self.open(data)

  def test_refuses_bottomless_header(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'not JSON'):
      self.open(_raw(b'[' * 1_000_000))

  def test_refuses_empty_and_missing_files(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'missing'):
      safetensors_file.SafetensorsFile(self.path)
    with self.assertRaisesRegex(errors.CheckpointError, 'is empty'):
      self.open(b'')


if __name__ == '__main__':
  absltest.main()
