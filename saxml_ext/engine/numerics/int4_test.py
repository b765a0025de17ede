"""Compares int4 weights and their products with numpy."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.numerics import einsum as einsum_lib
from saxml_ext.engine.numerics import int4
from saxml_ext.engine.numerics import quant

_SHAPE = (37, 96)


def _weights(rng: np.random.Generator, kind: str) -> np.ndarray:
  """Returns weights [37, 96] of which each group has steps of one size.

  Args:
    rng: The source of random numbers.
    kind: 'Q4_0', 'Q4_1' or 'GPTQ' of the checkpoint whose numbers these are.
  """
  codes = rng.integers(0, 16, (*_SHAPE[:1], 3, 32))
  step = np.exp(rng.normal(size=(*_SHAPE[:1], 3, 1))).astype(np.float16)
  if kind == 'Q4_0':
    zero = step * np.float32(8)
  elif kind == 'Q4_1':
    zero = rng.normal(size=step.shape).astype(np.float16).astype(np.float32)
  else:
    codes = np.clip(codes, 3, 11)
    zero = step * np.float32(7)
  weights = codes.astype(np.float32) * step.astype(np.float32) - zero
  return weights.reshape(_SHAPE).astype(np.float32)


def _dequantized(w: quant.QuantizedArray) -> np.ndarray:
  values = int4.dequantized(w.values, w.scale.size)
  return np.asarray(values) * np.asarray(w.scale).reshape(-1, 1)


class Int4Test(parameterized.TestCase):
  @parameterized.parameters('Q4_0', 'Q4_1', 'GPTQ')
  def test_4_bit_checkpoints_keep_their_numbers(self, kind):
    weights = _weights(np.random.default_rng(0), kind) * 0.02
    got = _dequantized(int4.quantize(weights, (1,)))
    # Minima are rounded to float16.
    limit = 2.0**-11 * np.abs(weights).max()
    np.testing.assert_allclose(got, weights, rtol=0, atol=limit)

  def test_floats_are_rounded_to_the_nearest_of_16(self):
    weights = np.random.default_rng(1).normal(size=_SHAPE) * np.logspace(
      -4, 4, _SHAPE[0]
    ).reshape(-1, 1)
    weights[3] = 0
    weights[4] = 5
    got = _dequantized(int4.quantize(weights.astype(np.float32), (1,)))
    groups = weights.reshape(-1, 3, 32)
    step = (groups.max(-1) - groups.min(-1)) / 15
    limit = 0.51 * step + 2e-3 * np.abs(groups).max(-1)
    error = np.abs(got.reshape(groups.shape) - groups).max(-1)
    self.assertTrue((error <= limit).all())

  def test_refuses_other_weights(self):
    with self.assertRaisesRegex(ValueError, 'no multiple of 32. Set quant'):
      int4.quantize(np.zeros((4, 40), np.float32), (1,))
    with self.assertRaisesRegex(ValueError, 'not finite'):
      int4.quantize(np.full((4, 32), np.inf, np.float32), (1,))

  @parameterized.parameters(1, 9)
  def test_products_are_those_of_the_weights(self, rows):
    if not kernels.has_int8_dots():
      self.skipTest('this processor has no kernel for int4')
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(96, 5, 8)).astype(np.float32)
    x = rng.normal(size=(rows, 96)).astype(np.float32)
    bias = rng.normal(size=(5, 8)).astype(np.float32)
    w = int4.quantize(weight, (0,))
    exact = x @ _dequantized(w).T + bias.reshape(-1)
    stacked = jax.tree.map(lambda *v: jnp.stack(v), w, w)
    second = layers_lib.in_place(stacked, 1)

    def multiply(x, second):
      by_kernel = einsum_lib.einsum('md,dnh->mnh', x, second, bias)
      mesh = jax.sharding.AbstractMesh((2,), ('x',))
      with jax.sharding.use_abstract_mesh(mesh):
        return by_kernel, einsum_lib.einsum('md,dnh->mnh', x, w, bias)

    by_kernel, by_xla = jax.jit(multiply)(x, second)
    np.testing.assert_allclose(
      by_xla.reshape(rows, -1), exact, rtol=1e-4, atol=1e-4
    )
    error = np.abs(by_kernel.reshape(rows, -1) - exact)
    # Activations are rounded to int8 in groups.
    self.assertLess(error.max(), 0.02 * np.abs(exact).max())
    self.assertGreater(error.max(), 0)


if __name__ == '__main__':
  absltest.main()
