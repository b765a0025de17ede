from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.network import dispatch_pb2
from harness.network import payload


class PayloadTest(parameterized.TestCase):
  @parameterized.parameters(
    (np.arange(6, dtype=np.int64).reshape(2, 3),),
    (np.arange(6, dtype=np.int32).reshape(2, 3).T,),
    (np.arange(3, dtype='>i4'),),
    (np.linspace(0, 1, 5, dtype=np.float32),),
    (np.array([True, False]),),
    (np.zeros((0,), np.int64),),
    (np.array(7, np.uint8),),
  )
  def test_arrays_come_as_they_went(self, array):
    sent = payload.encode({'a': array, 'b': array[..., None]})
    wire = [
      dispatch_pb2.Tensor.FromString(tensor.SerializeToString())
      for tensor in sent
    ]
    came = payload.decode(wire)
    self.assertEqual(list(came), ['a', 'b'])
    np.testing.assert_array_equal(came['a'], array)
    np.testing.assert_array_equal(came['b'], array[..., None])
    self.assertEqual(came['a'].dtype.name, array.dtype.name)
    self.assertTrue(came['a'].flags.writeable)

  def test_bytes_are_the_numbers_themselves(self):
    (tensor,) = payload.encode({'input_ids': np.array([1, 258], np.int32)})
    self.assertEqual(tensor.data, b'\1\0\0\0\2\1\0\0')
    self.assertEqual((tensor.dtype, list(tensor.shape)), ('<i4', [2]))

  def test_objects_are_refused(self):
    with self.assertRaisesRegex(ValueError, "'a' is an array of object"):
      payload.encode({'a': np.array([None])})

  @parameterized.parameters(
    ('|O', [1], b'12345678', 'not a number type'),
    ('what', [1], b'12345678', 'not a number type'),
    ('<i4', [3], b'12345678', r'8 bytes, but its shape \[3\] of <i4 needs 12'),
    ('<i4', [-1, -2], b'12345678', '8 bytes, but its shape'),
  )
  def test_wrong_messages_are_refused(self, dtype, shape, data, error):
    tensor = dispatch_pb2.Tensor(name='a', dtype=dtype, shape=shape, data=data)
    with self.assertRaisesRegex(ValueError, f"'a' has .*{error}"):
      payload.decode([tensor])

  def test_sizes_are_of_the_largest_array(self):
    self.assertEqual(
      payload.sizes([{'ids': np.zeros((1, 7)), 'mask': np.zeros(2)}]), [7]
    )


if __name__ == '__main__':
  absltest.main()
