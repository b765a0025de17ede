"""Tests of copying and checking large matrices."""

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np

from converters.convert import blocks

_BFLOAT16 = ml_dtypes.bfloat16


class BlocksTest(parameterized.TestCase):
  @parameterized.product(
    source=(np.float32, np.float16, np.float64, _BFLOAT16),
    target=(np.float32, _BFLOAT16),
    # Beside and across the sides of the squares.
    shape=((1, 1), (64, 64), (65, 200), (3, 129)),
  )
  def test_transposed_copy_is_numpys(self, source, target, shape):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal(shape).astype(source)
    out = np.empty(shape[::-1], target)
    blocks.copy(matrix.T, out)
    np.testing.assert_array_equal(out, matrix.T.astype(target))

  @parameterized.parameters(1, 3, 8)
  def test_rows_of_heads(self, rows):
    matrix = np.arange(96, dtype=np.float32).reshape(12, 8)
    view = matrix.T.reshape(8, 3, 4)[:rows]
    out = np.empty(view.shape, np.float32)
    blocks.copy(view, out)
    np.testing.assert_array_equal(out, view)
    stacked = np.empty((1, *view.shape), np.float32)
    blocks.copy(view[np.newaxis], stacked)
    np.testing.assert_array_equal(stacked[0], view)

  def test_vectors_and_strides(self):
    vector = np.arange(100, dtype=np.float32)[::3]
    out = np.empty(vector.shape, _BFLOAT16)
    blocks.copy(vector, out)
    np.testing.assert_array_equal(out, vector.astype(_BFLOAT16))

  @parameterized.product(
    dtype=(np.float32, np.float16, np.float64, _BFLOAT16),
    value=(np.nan, np.inf, -np.inf),
    # The last is in the second piece.
    where=((0, 0), (1, 2), (1024, 1023)),
  )
  def test_finds_what_is_no_number(self, dtype, value, where):
    array = np.full((1025, 1024), np.finfo(np.float16).max).astype(dtype)
    array[0, :] = -1
    self.assertIsNone(blocks.first_not_finite(array))
    array[where] = value
    array[1024, 1023] = value
    self.assertEqual(blocks.first_not_finite(array), where)


if __name__ == '__main__':
  absltest.main()
