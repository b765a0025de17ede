"""Tests of random checkpoints."""

import dataclasses
import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from converters.convert import model_source
from converters.convert import random_weights
from saxml_ext.families import hf_config

_SHAPE = hf_config.HFConfig(
  num_layers=2,
  model_dim=16,
  num_heads=2,
  hidden_dim=64,
  vocab_size=11,
  rotary_dim=4,
)


class RandomWeightsTest(parameterized.TestCase):
  def write(self, **options) -> str:
    directory = self.create_tempdir().full_path
    random_weights.write(directory, _SHAPE, **options)
    return directory

  def values(self, directory, dtype='float32') -> dict[str, np.ndarray]:
    source = model_source.ModelSource(directory)
    return {
      v.name: source.build(v, model_source.DTYPES[dtype])
      for v in source.variables
    }

  @parameterized.product(file_format=('safetensors', 'bin'), shards=(1, 3, 25))
  def test_weights_depend_on_neither_format_nor_shards(
    self, file_format, shards
  ):
    expected = self.values(self.write())
    directory = self.write(file_format=file_format, shards=shards)
    weights = [
      f for f in os.listdir(directory) if f.endswith(f'.{file_format}')
    ]
    self.assertLen(weights, shards)
    values = self.values(directory)
    for name, value in expected.items():
      np.testing.assert_array_equal(values[name], value)

  @parameterized.parameters('safetensors', 'bin')
  def test_same_flags_give_same_bytes(self, file_format):
    one, two = (
      {f.name: f.read_bytes() for f in pathlib.Path(directory).iterdir()}
      for directory in (
        self.write(file_format=file_format),
        self.write(file_format=file_format),
      )
    )
    self.assertEqual(one, two)

  def test_resumed_files_are_those_of_one_run(self):
    whole = pathlib.Path(self.write(shards=3))
    names = sorted(f.name for f in whole.iterdir())
    half = pathlib.Path(self.create_tempdir().full_path)
    first = 'model-00001-of-00003.safetensors'
    (half / first).write_bytes((whole / first).read_bytes())
    before = (half / first).stat().st_mtime_ns
    # A run that is killed while it writes a file leaves a partial file.
    (half / 'model-00002-of-00003.safetensors.partial').write_bytes(b'some')
    random_weights.write(str(half), _SHAPE, shards=3, resume=True)
    self.assertEqual(sorted(f.name for f in half.iterdir()), names)
    for name in names:
      self.assertEqual((half / name).read_bytes(), (whole / name).read_bytes())
    self.assertEqual((half / first).stat().st_mtime_ns, before)

  def test_bytes_depend_on_seed_and_dtype(self):
    name = 'params.lm.embedding_lookup.emb_var'
    base = self.values(self.write())[name]
    self.assertFalse(
      np.array_equal(self.values(self.write(seed=1))[name], base)
    )
    rounded = self.values(self.write(dtype='bfloat16'), 'bfloat16')[name]
    np.testing.assert_array_equal(rounded, base.astype(rounded.dtype))

  def test_invalid_sizes_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'rotary_dim is 10. .*at most 8'):
      dataclasses.replace(_SHAPE, rotary_dim=10)
    with self.assertRaisesRegex(ValueError, 'shards=26 exceeds the 25 tensors'):
      self.write(shards=26)


if __name__ == '__main__':
  absltest.main()
