"""Compares quantization with numpy."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.numerics import quant


class QuantTest(parameterized.TestCase):
  @parameterized.parameters(
    ((24, 10), (0,)), ((3, 4, 8, 24), (-1,)), ((4, 8, 24), (0, 1))
  )
  def test_weights_lie_within_half_a_code(self, shape, contracted):
    weight = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    weight *= np.exp(weight.sum(contracted, keepdims=True))
    quantized = quant.quantize(weight, contracted)
    self.assertEqual(quantized.values.dtype, jnp.int8)
    self.assertEqual(quantized.scale.dtype, jnp.float32)
    last = tuple(range(-len(contracted), 0))
    moved = np.moveaxis(weight, contracted, last)
    outputs = moved.shape[: -len(contracted)]
    self.assertEqual(quantized.scale.shape, outputs)
    self.assertEqual(
      quantized.values.shape,
      (np.prod(outputs), weight.size // np.prod(outputs)),
    )
    peak = np.abs(moved).max(last)
    np.testing.assert_allclose(quantized.scale, peak / 127, rtol=1e-6)
    codes = np.asarray(quantized.values).astype(int).reshape(moved.shape)
    np.testing.assert_array_equal(np.abs(codes).max(last), 127)
    scale = np.expand_dims(np.asarray(quantized.scale), last)
    self.assertLess((np.abs(codes * scale - moved) / scale).max(), 0.501)

  @parameterized.parameters(1, 24, 25, 10_000)
  def test_blocks_make_no_difference(self, block):
    weight = np.random.default_rng(2).normal(size=(6, 8, 24))
    whole = quant.quantize(weight, (0,))
    with mock.patch.object(quant, '_BLOCK', block):
      blocks = quant.quantize(weight, (0,))
    np.testing.assert_array_equal(blocks.values, whole.values)
    np.testing.assert_array_equal(blocks.scale, whole.scale)

  def test_rows_are_quantized_as_numpy_would(self):
    x = np.random.default_rng(1).normal(size=(50, 96)).astype(np.float32)
    x *= np.logspace(-6, 6, 50, dtype=np.float32)[:, None]
    peak = np.abs(x).max(-1, keepdims=True)
    expected = np.rint(x * (np.float32(127) / peak)).astype(np.int8)
    for axis, turn in ((-1, lambda a: a), (-2, np.transpose)):
      got = jax.jit(lambda x, axis=axis: quant.quantize_along(x, axis))(turn(x))
      self.assertEqual(got.axis, axis)
      np.testing.assert_array_equal(got.values, turn(expected))
      np.testing.assert_allclose(got.scale, turn(peak) / 127, rtol=1e-6)

  def test_zero_and_vanishing_rows_become_zeros(self):
    x = np.zeros((3, 8), np.float32)
    x[1, 2] = 1e-38
    x[2, 2] = 1e-42
    got = jax.jit(lambda x: quant.quantize_along(x, -1))(x)
    np.testing.assert_array_equal(got.values, 0)
    self.assertTrue(np.isfinite(got.scale).all())
    np.testing.assert_array_equal(quant.quantize(x, (1,)).values, 0)

  def test_fp8_has_three_bits_of_mantissa(self):
    weight = np.random.default_rng(3).normal(size=(5, 40)).astype(np.float32)
    weight[3] = 0
    quantized = quant.quantize(weight, (1,), quant.FP8)
    rows = jax.jit(
      lambda x: quant.quantize_along(x, -1, quant.CODES[quant.FP8])
    )(weight)
    np.testing.assert_array_equal(
      quantized.values.astype('float32'), rows.values.astype('float32')
    )
    np.testing.assert_allclose(quantized.scale, rows.scale[:, 0], rtol=1e-6)
    codes = np.asarray(quantized.values, np.float32)
    np.testing.assert_array_equal(np.abs(codes).max(1), [448, 448, 448, 0, 448])
    error = np.abs(codes * np.asarray(rows.scale) - weight)
    # Half of the last bit, also below the least normal number, 1 / 64.
    bound = np.maximum(np.abs(weight) / 16, np.asarray(rows.scale) / 1024)
    self.assertTrue((error <= bound * 1.001).all())
    # Values that come from such codes and scales keep their codes.
    again = quant.quantize(codes * np.asarray(rows.scale), (1,), quant.FP8)
    np.testing.assert_array_equal(again.values.astype('float32'), codes)

  @parameterized.parameters(np.nan, np.inf)
  def test_weights_that_are_not_finite_are_refused(self, value):
    weight = np.ones((4, 4), np.float32)
    weight[1, 2] = value
    with self.assertRaisesRegex(ValueError, r'\(4, 4\) has values.*finite'):
      quant.quantize(weight, (0,))


if __name__ == '__main__':
  absltest.main()
