"""Tests that a pickle is interpreted and never run."""

import collections
import os
import pickle
import time

from absl.testing import absltest
from absl.testing import parameterized

from converters.hf import torch_pickle
from saxml_ext.pax import errors

# The output of torch.save for {'w': one float32 tensor of shape [2, 3]}.
_SOUND = (
  b'\x80\x02}q\x00X\x01\x00\x00\x00wq\x01ctorch._utils\n_rebuild_tensor_v2\n'
  b'q\x02((X\x07\x00\x00\x00storageq\x03ctorch\nFloatStorage\nq\x04'
  b'X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06K\x06tq\x07QK\x00'
  b'K\x02K\x03\x86q\x08K\x03K\x01\x86q\x09\x89ccollections\nOrderedDict\n'
  b'q\x0a)Rq\x0btq\x0cRq\x0ds.'
)


class _Canary:
  """An object whose unpickling creates a file."""

  def __init__(self, path: str):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (self.path,)


class TorchPickleTest(parameterized.TestCase):
  def test_reads_a_tensor(self):
    storage = torch_pickle.StorageRef('float32', '0', 6)
    self.assertEqual(
      torch_pickle.read_tensors(_SOUND, 'f'),
      {'w': torch_pickle.TensorRef(storage, 0, (2, 3), (3, 1))},
    )

  @parameterized.parameters(*range(2, pickle.HIGHEST_PROTOCOL + 1))
  def test_code_is_refused_and_not_run(self, protocol):
    canary = os.path.join(self.create_tempdir().full_path, 'canary')
    data = pickle.dumps({'w': _Canary(canary)}, protocol)
    with self.assertRaisesRegex(
      errors.CheckpointError, 'f is refused.*No part of it was run'
    ):
      torch_pickle.read_tensors(data, 'f')
    self.assertFalse(os.path.exists(canary))
    pickle.loads(data)
    self.assertTrue(os.path.exists(canary))  # The pickle is harmful.

  @parameterized.named_parameters(
    (
      'builtin',
      b'\x80\x02c__builtin__\neval\nX\x01\x00\x00\x001\x85R.',
      'refers to __builtin__.eval',
    ),
    ('torch_function', b'\x80\x02ctorch\nload\n.', 'refers to torch.load'),
    (
      'numpy_objects',
      b'\x80\x02cnumpy.core.multiarray\n_reconstruct\n.',
      'refers to numpy.core.multiarray._reconstruct',
    ),
    (
      'storage_called',
      b'\x80\x02ctorch\nFloatStorage\n)R.',
      'calls torch.FloatStorage',
    ),
    (
      'ordered_dict_of_items',
      b'\x80\x02ccollections\nOrderedDict\n]\x85R.',
      'calls collections.OrderedDict',
    ),
    ('inst', b'\x80\x02(ios\nsystem\n.', 'uses INST'),
    ('extension', b'\x80\x02\x82\x01.', 'uses EXT1'),
    ('memo_bomb', b'\x80\x02}r\xff\xff\xff\x7f.', None),
    ('bytes_bomb', b'\x80\x05\x96' + b'\xff' * 8 + b'.', 'protocol 5'),
  )
  def test_bad_programs_are_refused(self, data, message):
    if message is None:
      self.assertEqual(torch_pickle.read_tensors(data, 'f'), {})
      return
    with self.assertRaisesRegex(errors.CheckpointError, message):
      torch_pickle.read_tensors(data, 'f')

  @parameterized.named_parameters(
    ('empty', b''),
    ('cut_off', _SOUND[:-10]),
    ('no_stack', b'\x80\x02.'),
    ('no_memo', b'\x80\x02h\x07.'),
    ('key_is_a_tuple', b'\x80\x02})K\x01s.'),
    (
      'beyond_its_storage',
      _SOUND.replace(b'K\x02K\x03\x86', b'K\x02K\x04\x86'),
    ),
    (
      'expanded',
      _SOUND.replace(b'K\x03K\x01\x86', b'K\x00K\x00\x86').replace(
        b'K\x02K\x03\x86', b'K\x7fK\x7f\x86'
      ),
    ),
    ('negative_offset', _SOUND.replace(b'QK\x00', b'QJ\xff\xff\xff\xff')),
  )
  def test_damaged_pickles_are_refused(self, data):
    with self.assertRaisesRegex(errors.CheckpointError, 'f: .*damaged'):
      torch_pickle.read_tensors(data, 'f')

  def test_only_a_dict_of_tensors_is_accepted(self):
    with self.assertRaisesRegex(
      errors.CheckpointError, "entry 'step' is a int"
    ):
      torch_pickle.read_tensors(pickle.dumps({'step': 1}, 2), 'f')
    with self.assertRaisesRegex(errors.CheckpointError, 'contains a list'):
      torch_pickle.read_tensors(pickle.dumps([], 2), 'f')
    self.assertEmpty(
      torch_pickle.read_tensors(pickle.dumps(collections.OrderedDict(), 2), 'f')
    )

  def test_oversize_is_refused_at_once(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'limit is 1048576'):
      torch_pickle.read_tensors(bytes(torch_pickle.MAX_PICKLE_BYTES + 1), 'f')

  def test_worst_case_is_bounded(self):
    data = b'\x80\x02' + b'}' * (torch_pickle.MAX_PICKLE_BYTES - 3) + b'.'
    begin = time.process_time()
    self.assertEmpty(torch_pickle.read_tensors(data, 'f'))
    self.assertLess(time.process_time() - begin, 10)


if __name__ == '__main__':
  absltest.main()
