"""Tests that malicious checkpoints are refused quickly and in little memory.

Each test changes one thing in a valid directory of about 12 MB. The converter
must refuse it within one second and within twice its size in memory. The
message must name the problem. The canary, a file that code in the checkpoint
would create, must not appear.
"""

from collections.abc import Callable
import json
import os
import pickle
import struct
import time
import zipfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from converters.convert import model_source
from converters.convert import random_weights
from saxml_ext.families import hf_config
from saxml_ext.pax import errors

_CPU_SECONDS = 1.0
_BIN = 'pytorch_model.bin'
_SAFE = 'model.safetensors'


def _peak_memory() -> int:
  """Returns the peak memory of this process in bytes since _forget_peak()."""
  with open('/proc/self/status') as f:
    for line in f:
      if line.startswith('VmHWM:'):
        return int(line.split()[1]) << 10
  raise RuntimeError('/proc/self/status has no VmHWM')


def _memory() -> int:
  with open('/proc/self/statm') as f:
    return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def _reset_peak() -> None:
  with open('/proc/self/clear_refs', 'w') as f:
    f.write('5')  # See proc(5).


class _Code:
  """An object whose unpickling creates the canary."""

  def __init__(self, canary: str):
    self._canary = canary

  def __reduce__(self):
    return os.mkdir, (self._canary,)


def _rewrite(
  path: str,
  changes: dict[str, bytes],
  compression: int = zipfile.ZIP_STORED,
  more: int = 0,
) -> None:
  """Rewrites a zip file with replaced members and additional empty ones."""
  with zipfile.ZipFile(path) as archive:
    members = {n: archive.read(n) for n in archive.namelist()}
  members |= changes
  with zipfile.ZipFile(path, 'w', compression) as archive:
    for name, data in members.items():
      archive.writestr(name, data)
    for i in range(more):
      archive.writestr(f'archive/{i}', b'')


def _header(path: str, change: Callable[[dict], None]) -> None:
  """Changes the JSON header of a safetensors file; the data stays unchanged."""
  with open(path, 'rb') as f:
    (length,) = struct.unpack('<Q', f.read(8))
    header, rest = json.loads(f.read(length)), f.read()
  change(header)
  text = json.dumps(header).encode('ascii')
  with open(path, 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + rest)


def _pickled_code(path: str, canary: str) -> None:
  _rewrite(path, {'archive/data.pkl': pickle.dumps({'w': _Code(canary)}, 2)})


def _old_format(path: str, canary: str) -> None:
  data = pickle.dumps([_Code(canary), bytes(os.path.getsize(path))], 2)
  with open(path, 'wb') as f:
    f.write(data)


def _numpy_objects(path: str, canary: str) -> None:
  array = np.array([_Code(canary)], object)
  _rewrite(path, {'archive/data.pkl': pickle.dumps({'w': array}, 2)})


def _nested_zip(path: str, unused_canary: str) -> None:
  with open(path, 'rb') as f:
    _rewrite(path, {'archive/data.pkl': f.read()})


def _zip_bomb(path: str, unused_canary: str) -> None:
  zeros = bytes(1 << 26)
  _rewrite(path, {'archive/data/0': zeros}, zipfile.ZIP_DEFLATED)


def _crowded_zip(path: str, unused_canary: str) -> None:
  _rewrite(path, {}, more=50_000)


def _program(path: str, unused_canary: str) -> None:
  _rewrite(
    path, {'archive/constants.pkl': b'\x80\x02).', 'archive/code/a': b''}
  )


def _claimed_header(path: str, unused_canary: str) -> None:
  with open(path, 'r+b') as f:
    f.write(struct.pack('<Q', 1 << 60))


def _long_header(path: str, unused_canary: str) -> None:
  entry = {'dtype': 'F32', 'shape': [0], 'data_offsets': [0, 0]}
  _header(path, lambda h: h.update({f't{i}': entry for i in range(100_000)}))


def _deep_header(path: str, unused_canary: str) -> None:
  text = b'[' * 1_000_000
  with open(path, 'r+b') as f:
    f.write(struct.pack('<Q', len(text)) + text)


def _object_type(path: str, unused_canary: str) -> None:
  _header(path, lambda h: h['lm_head.bias'].update(dtype='OBJECT'))


def _overlap(path: str, unused_canary: str) -> None:
  def change(header):
    one = header['transformer.h.0.attn.q_proj.weight']
    header['transformer.h.1.attn.q_proj.weight'] = dict(one)

  _header(path, change)


def _beyond_the_end(path: str, unused_canary: str) -> None:
  shape = {'shape': [1 << 40], 'data_offsets': [0, 1 << 42]}
  _header(path, lambda h: h['lm_head.bias'].update(shape))


def _path_escape(path: str, canary: str) -> None:
  os.rename(path, f'{path}.elsewhere')
  with open(f'{path}.index.json', 'w') as f:
    json.dump({'weight_map': {'lm_head.bias': f'../../{canary}'}}, f)


def _long_index(path: str, unused_canary: str) -> None:
  os.rename(path, f'{path}.elsewhere')
  with open(f'{path}.index.json', 'w') as f:
    json.dump({'weight_map': {f't{i}': _SAFE for i in range(200_000)}}, f)


def _change_config(path: str, **changes) -> None:
  config_path = f'{os.path.dirname(path)}/config.json'
  with open(config_path) as f:
    config = json.load(f) | changes
  with open(config_path, 'w') as f:
    json.dump(config, f)


def _remote_code(path: str, canary: str) -> None:
  with open(f'{os.path.dirname(path)}/evil.py', 'w') as f:
    f.write(f'import os\nos.mkdir({canary!r})\n')
  _change_config(path, auto_map={'AutoModelForCausalLM': 'evil.Model'})


def _layers(path: str, unused_canary: str) -> None:
  _change_config(path, n_layer=2_000_000_000)


class HostileCheckpointsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.canary = os.path.join(self.root, 'canary')

  def sound(self, kind: str) -> str:
    """Writes a valid checkpoint; returns the path of its weights."""
    directory = os.path.join(self.root, 'hf')
    shape = hf_config.HFConfig(2, 256, 4, 1024, 3000, rotary_dim=32)
    random_weights.write(directory, shape, kind)
    model_source.ModelSource(directory)
    return os.path.join(directory, _BIN if kind == 'bin' else _SAFE)

  @parameterized.named_parameters(
    ('pickled_code', 'bin', _pickled_code, 'refers to posix.mkdir.*No part'),
    ('old_format', 'bin', _old_format, 'not a zip archive'),
    ('numpy_objects', 'bin', _numpy_objects, 'refers to numpy.*_reconstruct'),
    ('nested_zip', 'bin', _nested_zip, 'data.pkl. claims'),
    ('zip_bomb', 'bin', _zip_bomb, 'is compressed or encrypted'),
    ('crowded_zip', 'bin', _crowded_zip, 'its zip directory has .* limit'),
    ('program', 'bin', _program, 'TorchScript program'),
    ('claimed_header', 'safetensors', _claimed_header, 'header claims 11529'),
    ('long_header', 'safetensors', _long_header, 'header claims .* limit'),
    ('deep_header', 'safetensors', _deep_header, 'header is not JSON'),
    ('object_type', 'safetensors', _object_type, 'Expected a dtype of'),
    ('overlap', 'safetensors', _overlap, 'tensors .* overlap'),
    (
      'beyond_the_end',
      'safetensors',
      _beyond_the_end,
      r'but has bytes \d+ to \d+ of',
    ),
    ('path_escape', 'safetensors', _path_escape, 'in the same directory'),
    ('long_index', 'safetensors', _long_index, 'bytes, above the limit'),
    ('remote_code', 'safetensors', _remote_code, 'auto_map.*was not run'),
    ('layers', 'safetensors', _layers, '2000000000 layers, but'),
  )
  def test_hostile_checkpoints_are_refused(self, kind, spoil, message):
    path = self.sound(kind)
    spoil(path, self.canary)
    directory = os.path.dirname(path)
    size = sum(e.stat().st_size for e in os.scandir(directory))
    _reset_peak()
    memory, begin = _memory(), time.process_time()
    with self.assertRaisesRegex(errors.CheckpointError, f'(?s){message}'):
      model_source.ModelSource(directory)
    self.assertLess(time.process_time() - begin, _CPU_SECONDS)
    self.assertLess(_peak_memory() - memory, 2 * size)
    self.assertFalse(os.path.exists(self.canary))

  def test_canary_detects_executed_code(self):
    pickle.loads(pickle.dumps(_Code(self.canary), 2))
    self.assertTrue(os.path.exists(self.canary))

  def test_allocations_raise_the_peak_memory(self):
    _reset_peak()
    memory = _memory()
    held = np.ones(1 << 22, np.float64)
    del held
    self.assertGreater(_peak_memory() - memory, 1 << 24)


if __name__ == '__main__':
  absltest.main()
