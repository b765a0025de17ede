"""Compares the kernels, as plain operations on CPU, with XLA."""

from absl.testing import absltest
from absl.testing import parameterized
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels.tpu import rows
from saxml_ext.engine.numerics import quant


class RowsTest(parameterized.TestCase):
  @parameterized.parameters((24, 256), (128, 128), (200, 384))
  def test_quantize_agrees_with_xla(self, count, width):
    """Checks the codes and scales; 200 rows end in the middle of a block."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, width)).astype(np.float32)
    x *= np.logspace(-6, 6, count, dtype=np.float32)[:, None]
    x[3] = 0
    for dtype in (jnp.float32, jnp.bfloat16):
      given = jnp.asarray(x, dtype)
      codes, scale = rows.quantize(given, interpret=True)
      expected = quant.quantize_along(given.astype(jnp.float32), -1)
      np.testing.assert_array_equal(codes, expected.values)
      np.testing.assert_allclose(scale, expected.scale, rtol=1e-6)

  def test_normalize_agrees_with_xla(self):
    rng = np.random.default_rng(1)
    x = rng.normal(3, 2, (40, 256)).astype(np.float32)
    scale, bias = rng.normal(size=(2, 256)).astype(np.float32)
    codes, sizes = rows.normalize(
      jnp.asarray(x), jnp.asarray(scale), jnp.asarray(bias), 1e-5, True
    )
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(
      x.var(1, keepdims=True) + 1e-5
    )
    normal = normal * scale + bias
    expected = quant.quantize_along(jnp.asarray(normal), -1)
    np.testing.assert_allclose(sizes, expected.scale, rtol=1e-5)
    # A different last bit of the norm may change the rounding of a code.
    difference = np.abs(codes.astype(int) - expected.values.astype(int))
    self.assertLessEqual(difference.max(), 1)
    self.assertLess(difference.mean(), 1e-3)


if __name__ == '__main__':
  absltest.main()
