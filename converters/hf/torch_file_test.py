"""Tests of reading valid and malicious .bin files without PyTorch."""

import os
import pickle
import zipfile

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np

from converters.hf import torch_file
from converters.hf import weights_file
from saxml_ext.pax import errors


def _members(path: str) -> dict[str, bytes]:
  with zipfile.ZipFile(path) as archive:
    return {n: archive.read(n) for n in archive.namelist()}


class TorchFileTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.create_tempdir().full_path, 'model.bin')

  def write(self, tensors: dict[str, np.ndarray]) -> None:
    specs = [
      weights_file.TensorSpec(n, t.shape, t.dtype) for n, t in tensors.items()
    ]
    torch_file.write(self.path, specs, tensors.values())

  def rewrite(
    self,
    changes: dict[str, bytes | None],
    compression: int = zipfile.ZIP_STORED,
  ) -> None:
    """Replaces members of the file; a value of None removes the member."""
    members = _members(self.path) | changes
    with zipfile.ZipFile(self.path, 'w', compression) as archive:
      for name, data in members.items():
        if data is not None:
          archive.writestr(name, data)

  def assertRefused(self, message: str) -> None:
    with self.assertRaisesRegex(errors.CheckpointError, message):
      torch_file.TorchFile(self.path)

  @parameterized.parameters(np.float32, np.float16, ml_dtypes.bfloat16)
  def test_reads_files_of_the_writer(self, dtype):
    rng = np.random.default_rng(0)
    tensors = {
      'a.b': rng.standard_normal((3, 4)).astype(dtype),
      'c': rng.standard_normal(5).astype(dtype),
    }
    self.write(tensors)
    file = torch_file.TorchFile(self.path)
    self.assertEqual(file.shapes, {'a.b': (3, 4), 'c': (5,)})
    for name, value in tensors.items():
      self.assertEqual(file.read(name).dtype, value.dtype)
      np.testing.assert_array_equal(file.read(name), value)

  def test_code_is_refused_and_not_run(self):
    canary = os.path.join(os.path.dirname(self.path), 'canary')
    self.write({'w': np.ones(3, np.float32)})

    class Canary:
      def __reduce__(self):
        return os.mkdir, (canary,)

    self.rewrite({'archive/data.pkl': pickle.dumps({'w': Canary()}, 2)})
    self.assertRefused('refers to posix.mkdir. No part of it was run')
    self.assertFalse(os.path.exists(canary))

  def test_refuses_other_formats(self):
    with open(self.path, 'wb') as f:
      pickle.dump({'w': 1}, f, 2)
    self.assertRefused('not a zip archive')

  def test_refuses_compression_and_bombs(self):
    self.write({'w': np.zeros(1_000_000, np.float32)})
    self.rewrite({}, zipfile.ZIP_DEFLATED)
    self.assertRefused("'archive/data.pkl' is compressed")

  def test_refuses_nested_zip(self):
    self.write({'w': np.ones(3, np.float32)})
    with open(self.path, 'rb') as f:
      inner = f.read()
    with zipfile.ZipFile(self.path, 'w') as archive:
      archive.writestr('archive/data.pkl', inner)
    self.assertRefused('pickle is damaged|is refused')

  def test_refuses_programs_and_other_byte_orders(self):
    self.write({'w': np.ones(3, np.float32)})
    self.rewrite({'archive/constants.pkl': b'x'})
    self.assertRefused('TorchScript')
    self.rewrite({'archive/constants.pkl': None, 'archive/byteorder': b'big'})
    self.assertRefused('not little-endian')

  @parameterized.parameters((None, 'none'), (b'1234', '4'))
  def test_refuses_wrong_storage(self, data, size):
    self.write({'w': np.ones(3, np.float32)})
    self.rewrite({'archive/data/0': data})
    self.assertRefused(f'expected 12 bytes for tensor w, found {size}.')

  def test_refuses_no_or_two_pickles(self):
    self.write({'w': np.ones(3, np.float32)})
    self.rewrite({'other/data.pkl': b'x'})
    self.assertRefused('2 members named data.pkl')
    self.rewrite({'other/data.pkl': None, 'archive/data.pkl': None})
    self.assertRefused('0 members named data.pkl')

  def test_damaged_numbers_are_reported(self):
    value = np.arange(100, 200, dtype=np.float32)
    self.write({'w': value})
    with open(self.path, 'rb') as f:
      data = f.read()
    with open(self.path, 'wb') as f:
      f.write(data.replace(value.tobytes(), value[::-1].tobytes()))
    with self.assertRaisesRegex(
      errors.CheckpointError, 'tensor w does not match its checksum'
    ):
      torch_file.TorchFile(self.path).read('w')

  def test_refuses_cut_off_file(self):
    self.write({'w': np.ones(1000, np.float32)})
    os.truncate(self.path, 3000)
    self.assertRefused('not a zip archive')

  def test_refuses_oversize_member(self):
    self.write({'w': np.ones(3, np.float32)})
    with open(self.path, 'rb') as f:
      data = bytearray(f.read())
    # Overwrites both sizes of the first member (data.pkl) in the zip directory.
    entry = data.index(b'PK\x01\x02')
    data[entry + 20 : entry + 28] = b'\xf0\xff\xff\x7f' * 2
    with open(self.path, 'wb') as f:
      f.write(data)
    self.assertRefused("data.pkl' claims 2147483632 bytes")


if __name__ == '__main__':
  absltest.main()
