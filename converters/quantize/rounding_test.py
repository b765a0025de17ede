"""Tests of rounding matrices to codes."""

from absl.testing import absltest
import numpy as np

from converters.quantize import rounding


def _rows(outputs=7, inputs=300, seed=0) -> np.ndarray:
  rng = np.random.default_rng(seed)
  return rng.standard_t(3, (outputs, inputs)).astype(np.float32)


class QuantizedRowsTest(absltest.TestCase):
  def test_known_codes(self):
    rows = np.array([[127, -127, 0.5, 1.5, -2.5], [0, 0, 0, 0, 0]], np.float32)
    scale = rounding.scales(rows, 127)
    np.testing.assert_array_equal(scale, np.array([1, 1], np.float32))
    np.testing.assert_array_equal(
      rounding.codes(rows, scale, 127),
      [[127, -127, 0, 2, -2], [0, 0, 0, 0, 0]],  # Ties go to even.
    )

  def test_errors_are_half_a_step_at_most(self):
    for bits in (8, 4):
      rows = _rows(600)
      largest = rounding.limit(bits)
      scale = rounding.scales(rows, largest)
      codes = rounding.codes(rows, scale, largest)
      np.testing.assert_array_equal(np.abs(codes).max(1), largest)
      steps = np.abs(codes * scale[:, None] - rows) / scale[:, None]
      self.assertLessEqual(steps.max(), 0.5001)
      self.assertGreater(steps.max(), 0.4)

  def test_clipping_lessens_the_squared_error(self):
    rows, largest = _rows(), rounding.limit(4)

    def error(scale, weight=1.0):
      codes = rounding.codes(rows, scale, largest)
      return (np.square(codes * scale[:, None] - rows) * weight).sum(1)

    plain = rounding.scales(rows, largest)
    clipped = rounding.clipped_scales(rows, largest)
    self.assertTrue((error(clipped) < error(plain)).all())
    self.assertTrue((clipped < plain).all())
    weight = np.where(np.abs(rows).argmax(1).max() == np.arange(300), 1e4, 1e-4)
    weighted = rounding.clipped_scales(rows, largest, weight.astype(np.float32))
    self.assertLessEqual(
      error(weighted, weight).sum(), error(clipped, weight).sum()
    )
    self.assertFalse(np.array_equal(weighted, clipped))

  def test_clipping_finds_the_bound_of_the_least_weighted_error(self):
    rows, largest = _rows(30, 64, seed=3), rounding.limit(4)
    weight = np.random.default_rng(4).exponential(size=64) ** 3
    weight = weight.astype(np.float32)
    scales = rounding.clipped_scales(rows, largest, weight)
    differ = 0
    for row, scale in zip(rows, scales):

      def error(scale, weight):
        codes = np.clip(np.rint(row / scale), -largest, largest)
        return (weight * np.square(codes * scale - row, dtype=np.float64)).sum()

      peak = np.abs(row).max()
      candidates = [
        np.float32(peak / largest) * np.float32(percent / 100)
        for percent in range(50, 101)
      ]
      least = min(error(candidate, weight) for candidate in candidates)
      self.assertLessEqual(error(scale, weight), least * (1 + 1e-5))
      unweighted = min(candidates, key=lambda c: error(c, 1.0))
      differ += error(unweighted, weight) > least * 1.01
    # Without the weight, most rows would get another bound.
    self.assertGreater(differ, 15)


def _one_by_one(rows, scale, largest, hessian, damping) -> np.ndarray:
  """Returns the codes of the original GPTQ algorithm, one input at a time.

  The inverse Hessian shrinks with each input.
  """
  left = rows.astype(np.float64)
  damped = hessian.astype(np.float64)
  damped += damping * np.diag(damped).mean() * np.eye(len(damped))
  inverse = np.linalg.inv(damped)
  codes = np.zeros(rows.shape, np.int8)
  for i in np.argsort(-np.diag(hessian), kind='stable'):
    codes[:, i] = np.clip(np.rint(left[:, i] / scale), -largest, largest)
    error = (left[:, i] - codes[:, i] * scale) / inverse[i, i]
    left -= error[:, None] * inverse[i]
    inverse -= np.outer(inverse[:, i], inverse[i]) / inverse[i, i]
  return codes


class GptqTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.rows = _rows(40, 200)
    self.scale = rounding.scales(self.rows, 7)
    self.plain = rounding.codes(self.rows, self.scale, 7)

  def test_inputs_without_correlation_are_rounded_plainly(self):
    codes = rounding.gptq_codes(
      self.rows, self.scale, 7, np.eye(200, dtype=np.float32)
    )
    np.testing.assert_array_equal(codes, self.plain)

  def inputs(self) -> np.ndarray:
    """Returns inputs [2000, 200] float32 that correlate."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(2000, 30)) @ rng.normal(size=(30, 200))
    return (inputs + 0.3 * rng.normal(size=inputs.shape)).astype(np.float32)

  def test_codes_match_the_rule_with_the_papers_damping(self):
    inputs = self.inputs()
    hessian = inputs.T @ inputs / len(inputs)
    codes = rounding.gptq_codes(self.rows, self.scale, 7, hessian)
    arguments = self.rows, self.scale, 7, hessian
    expected = _one_by_one(*arguments, damping=0.01)
    # One value that is rounded differently changes all values after it.
    self.assertLess((codes != expected).mean(), 0.02)
    for damping in (0, 0.001, 0.1, 1):
      other = _one_by_one(*arguments, damping=damping)
      self.assertGreater((codes != other).mean(), 0.05, damping)

  def test_outputs_err_less_where_inputs_correlate(self):
    inputs = self.inputs()
    hessian = inputs.T @ inputs / len(inputs)
    codes = rounding.gptq_codes(self.rows, self.scale, 7, hessian)
    self.assertLessEqual(np.abs(codes.astype(int)).max(), 7)

    def error(codes):
      difference = codes * self.scale[:, None] - self.rows
      return np.square(inputs @ difference.T).mean()

    self.assertLess(error(codes), 0.5 * error(self.plain))

  def test_inputs_that_are_always_zero_do_no_harm(self):
    hessian = np.eye(200, dtype=np.float32)
    hessian[5] = hessian[:, 5] = 0
    codes = rounding.gptq_codes(self.rows, self.scale, 7, hessian)
    np.testing.assert_array_equal(codes, self.plain)
    nothing = rounding.gptq_codes(self.rows, self.scale, 7, 0 * hessian)
    np.testing.assert_array_equal(nothing, self.plain)


if __name__ == '__main__':
  absltest.main()
