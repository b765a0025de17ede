"""Tests of the kernels; attention_test.cc tests attention."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import candidates as candidates_lib
from saxml_ext.engine.kernels import interrupts
from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.numerics import quant

_VNNI = frozenset({'avx512_vnni'})


class AttendTest(absltest.TestCase):
  def test_slot_outside_the_blocks_is_refused(self):
    floats, ints = jnp.ones((1, 1, 1, 4)), jnp.zeros(1, jnp.int32)
    block = (jnp.ones((3, 1, 1, 4)), jnp.ones((3, 1, 1, 4)))
    keys = (jnp.ones((3, 1, 4, 1)), jnp.ones((3, 1, 1, 4)))
    ancestry = [jnp.zeros((1, 1, 1), jnp.int8)]
    for index in (-1, 3):
      with self.assertRaisesRegex(
        Exception, f'at place {index} of blocks of 3'
      ):
        kernels.attend(
          floats, ints, ancestry, [keys], [block], ints + index
        ).block_until_ready()
    got = kernels.attend(floats, ints, ancestry, [keys], [block], ints + 2)
    np.testing.assert_array_equal(got, np.ones((1, 1, 1, 4)))


class MultiplyTest(parameterized.TestCase):
  # The sizes cover few rows, one to four and more blocks of 16 rows, odd
  # numbers of rows and outputs, and row lengths that are not multiples of 16 or
  # 64.
  @parameterized.parameters(
    (1, 40, 64),
    (3, 5, 12),
    (8, 131, 260),
    (9, 1, 4),
    (16, 16, 128),
    (20, 300, 100),
    (33, 17, 96),
    (64, 128, 64),
    (100, 129, 72),
    (150, 40, 1024),
  )
  def test_products_are_exact(self, rows, outputs, size):
    if not kernels.can_multiply():
      self.skipTest('this processor leaves int8 products to XLA')
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, size)).astype(np.float32)
    x *= np.exp(rng.normal(size=(rows, 1)) * 3).astype(np.float32)
    x[rows // 2] = 0  # A row without a scale.
    values = rng.integers(-127, 128, (outputs, size)).astype(np.int8)
    scale = rng.uniform(1e-3, 1, outputs).astype(np.float32)
    multiply = jax.jit(kernels.multiply)
    got = multiply(x, values, scale, np.zeros(outputs, np.float32))
    codes = quant.quantize_along(jnp.asarray(x), -1)
    sums = np.asarray(codes.values, np.int64) @ values.T.astype(np.int64)
    expected = sums.astype(np.float32) * (np.asarray(codes.scale) * scale)
    np.testing.assert_array_equal(got, expected)
    bias = rng.normal(size=outputs).astype(np.float32) * expected.std()
    got = multiply(x, values, scale, bias)
    # The sum of product and bias may be rounded once or twice.
    tolerance = 1e-7 * np.abs(expected).max()
    np.testing.assert_allclose(got, expected + bias, atol=tolerance)

  def test_gated_products_are_those_of_both_weights(self):
    if not kernels.can_multiply():
      self.skipTest('this processor leaves int8 products to XLA')
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 72)).astype(np.float32)
    weights = []
    for _ in range(2):
      codes = rng.integers(-127, 128, (131, 72)).astype(np.int8)
      scale = rng.uniform(1e-3, 1e-2, 131).astype(np.float32)
      weights.append((codes, scale, rng.normal(size=131).astype(np.float32)))
    gate, up = (jax.jit(kernels.multiply)(x, *weight) for weight in weights)
    got = jax.jit(kernels.multiply_gated)(x, *weights)
    np.testing.assert_allclose(got, jax.nn.silu(gate) * up, rtol=2e-6)

  def test_two_planes_are_finer_than_bfloat16(self):
    if not kernels.can_multiply(2):
      self.skipTest('this processor leaves int8 products to XLA')
    rng = np.random.default_rng(0)
    x = rng.normal(size=(130, 512)).astype(np.float32)
    x[:, :3] *= 30  # Some channels are much larger.
    values = rng.integers(-127, 128, (40, 512)).astype(np.int8)
    ones, zeros = np.ones(40, np.float32), np.zeros(40, np.float32)
    exact = x.astype(float) @ values.T
    fine = kernels.multiply(x, values, ones, zeros, planes=2)
    rounded = np.asarray(jnp.asarray(x, jnp.bfloat16), float) @ values.T
    self.assertLess(
      np.abs(fine - exact).mean(), 0.5 * np.abs(rounded - exact).mean()
    )

  def test_the_largest_codes_do_not_overflow(self):
    if not kernels.can_multiply():
      self.skipTest('this processor leaves int8 products to XLA')
    for rows in (1, 32):
      x = np.ones((rows, 16384), np.float32)
      x[:, 1::2] = -1
      values = np.full((20, 16384), 127, np.int8)
      values[:, 1::2] = -127
      scale, bias = np.ones(20, np.float32), np.zeros(20, np.float32)
      got = kernels.multiply(x, values, scale, bias)
      expected = 16384 * 127 * 127 * np.float32(1 / np.float32(127))
      np.testing.assert_allclose(got, np.full((rows, 20), expected), rtol=1e-6)

  @parameterized.parameters(
    (_VNNI, True, True),
    (_VNNI | {'amx_int8'}, False, True),
    (frozenset({'avx2'}), True, True),
    (frozenset({'avx512f'}), False, False),
    (frozenset(), False, False),
  )
  def test_kernel_is_used_only_where_it_is_fast(self, features, expected, fine):
    with mock.patch.object(kernels, 'features', return_value=features):
      self.assertEqual(kernels.can_multiply(), expected)
      self.assertEqual(kernels.can_multiply(2), fine)

  @parameterized.parameters(
    ('', False),
    ('--xla_cpu_max_isa=AVX512', False),
    ('--xla_cpu_max_isa=avx2 --xla_cpu_use_onednn=false', True),
    ('--xla_cpu_max_isa=AVX512 --xla_cpu_max_isa=AVX', True),
  )
  def test_avx512_is_off_if_it_is_off_in_xla(self, xla_flags, expected):
    with mock.patch.dict(os.environ, XLA_FLAGS=xla_flags):
      self.assertEqual(kernels.without_avx512(), expected)
      features = kernels.features.__wrapped__()
    if expected:
      self.assertNotIn('avx512f', features)

  def test_several_devices_use_no_kernel(self):
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((1,), ('x',), auto)
    with mock.patch.object(kernels, 'features', return_value=_VNNI):
      with jax.set_mesh(mesh):
        self.assertFalse(kernels.can_multiply())


class MultiplyFloatsTest(parameterized.TestCase):
  # The test of the kernel alone is float_product_test.cc.
  @parameterized.parameters(
    (1, 40, 64), (4, 600, 33), (8, 50, 2048), (13, 7, 5), (16, 1030, 96)
  )
  def test_products_agree_with_double_precision(self, rows, outputs, size):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, size)).astype(np.float32)
    weights = rng.normal(size=(size, outputs)).astype(np.float32)
    bias = rng.normal(size=outputs).astype(np.float32)
    exact = x.astype(float) @ weights + bias
    for outputs_first in (False, True):
      w = weights.T.copy() if outputs_first else weights
      got = kernels.multiply_floats(x, w, bias, outputs_first)
      np.testing.assert_allclose(got, exact, atol=1e-6 * size)


class FindLikeliestTest(parameterized.TestCase):
  @parameterized.parameters(
    (1, 1, 5, 5),
    (3, 4, 64, 8),
    (2, 1, 1000, 1),
    (4, 3, 777, 40),
    (2, 2, 50401, 8),
  )
  def test_results_are_those_of_sorting(self, slots, rows, vocabulary, count):
    rng = np.random.default_rng(vocabulary)
    logits = rng.normal(size=(slots, rows, vocabulary)).astype(np.float32) * 4
    # The logits have ties, also among the largest, and some are minus infinity.
    logits[:, :, ::3] = np.round(logits[:, :, ::3])
    logits[:, :, -1] = -np.inf
    barred = np.full((slots, 2), -1, np.int32)
    barred[0] = logits[0, 0].argmax(), vocabulary // 2
    got = jax.jit(candidates_lib.find_likeliest, static_argnums=2)(
      logits, barred, count
    )
    peak, total, values, tokens = map(np.asarray, got)
    np.testing.assert_array_equal(peak, logits.max(-1))
    exact = np.log(np.exp(logits.astype(float) - peak[..., None]).sum(-1))
    np.testing.assert_allclose(total, exact, rtol=2e-7, atol=2e-7)
    for slot in range(slots):
      for token in barred[slot][barred[slot] >= 0]:
        logits[slot, :, token] = -np.inf
    order = np.argsort(-logits, -1, kind='stable')[..., :count]
    np.testing.assert_array_equal(tokens, order)
    np.testing.assert_array_equal(values, np.take_along_axis(logits, order, -1))


class MultiplyLikeliestTest(parameterized.TestCase):
  # The sizes cover one and many parts, the last of them empty or not whole.
  @parameterized.parameters(
    (1, 5, 12, 5),
    (3, 130, 64, 1),
    (8, 2049, 72, 8),
    (9, 70_001, 24, 6),
    (33, 8192, 16, 40),
  )
  def test_results_are_the_largest_products(self, rows, outputs, size, count):
    if not kernels.can_multiply():
      self.skipTest('this processor leaves int8 products to XLA')
    rng = np.random.default_rng(outputs)
    x = rng.normal(size=(rows, size)).astype(np.float32)
    values = rng.integers(-127, 128, (outputs, size)).astype(np.int8)
    scale = rng.uniform(1e-3, 1e-2, outputs).astype(np.float32)
    bias = rng.normal(size=outputs).astype(np.float32)
    if outputs > 100:  # Ties, of which some are in different parts.
      for array in (values, scale, bias):
        array[outputs // 2 :][: outputs // 3] = array[: outputs // 3]
      bias[-2] = -np.inf  # A token that pads the vocabulary.
    logits = jax.jit(kernels.multiply)(x, values, scale, bias)
    nothing = np.full((rows, 1), -1, np.int32)
    expected = candidates_lib.find_likeliest(logits[:, None], nothing, count)
    find = jax.jit(kernels.multiply_likeliest, static_argnums=4)
    peak, total, *best = find(x, values, scale, bias, count)
    np.testing.assert_array_equal(peak, expected[0][:, 0])
    np.testing.assert_allclose(total, expected[1][:, 0], rtol=1e-6, atol=1e-6)
    for got, want in zip(best, expected[2:]):
      np.testing.assert_array_equal(got, want[:, 0])


class LibraryTest(absltest.TestCase):
  def test_missing_library_is_an_error_on_a_cpu_only(self):
    with mock.patch.object(kernels, 'library', return_value=None):
      with self.assertRaisesRegex(RuntimeError, 'libkernels.so does not exist'):
        kernels.usable()
      with mock.patch.object(jax, 'default_backend', return_value='gpu'):
        self.assertTrue(kernels.usable())
        interrupts.Flag().set(up=True)


if __name__ == '__main__':
  absltest.main()
