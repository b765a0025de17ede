"""Tests of rounding matrices to codes."""

from absl.testing import absltest
import numpy as np

from converters import quantized_rows
from converters import quantized_rows_gptq


def _rows(outputs=7, inputs=300, seed=0) -> np.ndarray:
  rng = np.random.default_rng(seed)
  return rng.standard_t(3, (outputs, inputs)).astype(np.float32)


class QuantizedRowsTest(absltest.TestCase):

  def test_known_codes(self):
    rows = np.array([[127, -127, 0.5, 1.5, -2.5], [0, 0, 0, 0, 0]], np.float32)
    scale = quantized_rows.scales(rows, 127)
    np.testing.assert_array_equal(scale, np.array([1, 1], np.float32))
    np.testing.assert_array_equal(
        quantized_rows.codes(rows, scale, 127),
        [[127, -127, 0, 2, -2], [0, 0, 0, 0, 0]],  # ties go to the even one
    )

  def test_errors_are_half_a_step_at_most(self):
    for bits in (8, 4):
      rows = _rows(600)
      largest = quantized_rows.limit(bits)
      scale = quantized_rows.scales(rows, largest)
      codes = quantized_rows.codes(rows, scale, largest)
      np.testing.assert_array_equal(np.abs(codes).max(1), largest)
      steps = np.abs(codes * scale[:, None] - rows) / scale[:, None]
      self.assertLessEqual(steps.max(), 0.5001)
      self.assertGreater(steps.max(), 0.4)

  def test_clipping_lessens_the_squared_error(self):
    rows, largest = _rows(), quantized_rows.limit(4)

    def error(scale, weight=1.0):
      codes = quantized_rows.codes(rows, scale, largest)
      return (np.square(codes * scale[:, None] - rows) * weight).sum(1)

    plain = quantized_rows.scales(rows, largest)
    clipped = quantized_rows.clipped_scales(rows, largest)
    self.assertTrue((error(clipped) < error(plain)).all())
    self.assertTrue((clipped < plain).all())
    weight = np.where(np.abs(rows).argmax(1).max() == np.arange(300), 1e4, 1e-4)
    weighted = quantized_rows.clipped_scales(
        rows, largest, weight.astype(np.float32)
    )
    self.assertLessEqual(
        error(weighted, weight).sum(), error(clipped, weight).sum()
    )
    self.assertFalse(np.array_equal(weighted, clipped))


class GptqTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.rows = _rows(40, 200)
    self.scale = quantized_rows.scales(self.rows, 7)
    self.plain = quantized_rows.codes(self.rows, self.scale, 7)

  def test_inputs_without_correlation_are_rounded_plainly(self):
    codes = quantized_rows_gptq.codes(
        self.rows, self.scale, 7, np.eye(200, dtype=np.float32)
    )
    np.testing.assert_array_equal(codes, self.plain)

  def test_outputs_err_less_where_inputs_correlate(self):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(2000, 30)) @ rng.normal(size=(30, 200))
    inputs = (inputs + 0.3 * rng.normal(size=inputs.shape)).astype(np.float32)
    hessian = inputs.T @ inputs / len(inputs)
    codes = quantized_rows_gptq.codes(self.rows, self.scale, 7, hessian)
    self.assertLessEqual(np.abs(codes.astype(int)).max(), 7)

    def error(codes):
      difference = codes * self.scale[:, None] - self.rows
      return np.square(inputs @ difference.T).mean()

    self.assertLess(error(codes), 0.5 * error(self.plain))

  def test_inputs_that_are_never_there_do_no_harm(self):
    hessian = np.eye(200, dtype=np.float32)
    hessian[5] = hessian[:, 5] = 0
    codes = quantized_rows_gptq.codes(self.rows, self.scale, 7, hessian)
    np.testing.assert_array_equal(codes, self.plain)
    nothing = quantized_rows_gptq.codes(self.rows, self.scale, 7, 0 * hessian)
    np.testing.assert_array_equal(nothing, self.plain)


if __name__ == '__main__':
  absltest.main()
