"""Tests that a conversion needs little memory, even if a tensor is large."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from converters.convert import random_weights
from converters.hf import torch_file
from converters.hf import weights_file
from converters.testing import killed_runs
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.families import llama

# The embedding and the head have 1.05 GB each in float32, which is half the
# width of an 8B.
_CONFIG = hf_config.HFConfig(
  num_layers=1,
  model_dim=2048,
  num_heads=16,
  hidden_dim=7168,
  vocab_size=128256,
  num_kv_heads=4,
  rotary_dim=128,
  eos_id=0,
)
# A conversion keeps several parts of 64 MiB: ready, compressed and written. An
# 8B in bfloat16 needs about as much, because the size of the parts is constant.
_MAX_BYTES = 800 << 20


def _write_zeros(directory: str) -> None:
  """Writes a model whose weights are a hole in the file."""
  small = hf_config.HFConfig(1, 4, 1, 4, 4, rotary_dim=4)
  random_weights.write(directory, small, family=llama.FAMILY)
  config = hf_config.document('llama', _CONFIG, llama.FAMILY.config)
  with open(os.path.join(directory, 'config.json'), 'w') as file:
    json.dump(config, file)
  header, end = {}, 0
  for variable in layout.variables(_CONFIG, family=llama.FAMILY):
    for name in variable.sources:
      begin, end = end, end + 4 * int(np.prod(variable.source_shape))
      header[name] = {
        'dtype': 'F32',
        'shape': variable.source_shape,
        'data_offsets': [begin, end],
      }
  text = json.dumps(header).encode('ascii')
  text += b' ' * (-len(text) % 8)
  with open(os.path.join(directory, 'model.safetensors'), 'wb') as file:
    file.write(len(text).to_bytes(8, 'little') + text)
    file.truncate(8 + len(text) + end)


def _file_bytes() -> int:
  """Returns the memory of this process that belongs to mapped files."""
  with open('/proc/self/statm') as file:
    return int(file.read().split()[2]) * os.sysconf('SC_PAGE_SIZE')


class MemoryTest(parameterized.TestCase):
  @parameterized.parameters('float32', 'bfloat16')
  def test_embedding_and_head_larger_than_the_bound(self, dtype):
    root = self.create_tempdir().full_path
    os.mkdir(f'{root}/hf')
    _write_zeros(f'{root}/hf')
    run = killed_runs.run(
      'convert_hf', f'--base={root}/hf', f'--pax={root}/pax', f'--dtype={dtype}'
    )
    print(f'{dtype}: peak {run.peak_bytes / 2**20:.0f} MiB')
    self.assertLess(run.peak_bytes, _MAX_BYTES)

  def test_checksums_release_the_pages_that_they_read(self):
    path = self.create_tempfile().full_path
    value = np.zeros((64, 1 << 20), np.float32)
    spec = weights_file.TensorSpec('w', value.shape, value.dtype)
    torch_file.write(path, [spec], [value])
    del value
    file = torch_file.TorchFile(path)
    before = _file_bytes()
    tensor = file.read('w')
    self.assertLess(_file_bytes() - before, spec.num_bytes // 2)
    self.assertEqual(tensor[5, 5], 0)


if __name__ == '__main__':
  absltest.main()
