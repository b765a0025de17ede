"""Compares the quantized product with integer arithmetic in numpy."""

import contextlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.numerics import einsum as einsum_lib
from saxml_ext.engine.numerics import matrix_form
from saxml_ext.engine.numerics import quant

_SIZES = dict(b=2, t=5, s=2, k=3, c=3, n=2, h=8, d=24, f=40, v=33)


def _operands(spec):
  """Returns x, w and the dimensions of w that are contracted."""
  terms, result = spec.split('->')
  x, w = terms.split(',')
  rng = np.random.default_rng(0)

  def draw(dims):
    shape = [_SIZES[d] for d in dims.replace('...', 'sk')]
    return rng.normal(size=shape).astype(np.float32)

  return draw(x), draw(w), [w.index(d) for d in w if d not in result]


def _codes(quantized, w, contracted):
  """Returns the codes of a quantized `w`, with its original dimensions."""
  last = tuple(range(-len(contracted), 0))
  shape = np.moveaxis(w, contracted, last).shape
  return np.moveaxis(quantized.values.reshape(shape), last, contracted)


class EinsumTest(parameterized.TestCase):
  @parameterized.product(
    spec=(
      'btd,cnhd->cbnth',
      'bnth,nhd->btd',
      'skd,cnhd->csnkh',
      'snkh,nhd->skd',
      '...d,df->...f',
      '...f,fd->...d',
      '...d,dv->...v',
    ),
    by_kernel=(True, False),
  )
  def test_quantized_is_exact_in_integers(self, spec, by_kernel):
    x, w, contracted = _operands(spec)
    quantized = quant.quantize(w, contracted)
    # If the processor has no kernel, XLA computes both.
    has = by_kernel and kernels.has_int8_dots()
    with mock.patch.object(kernels, 'has_int8_dots', return_value=has):
      got = jax.jit(lambda x, w: einsum_lib.einsum(spec, x, w))(x, quantized)
    self.assertEqual(got.dtype, jnp.float32)

    codes = _codes(quantized, w, contracted)
    w_scale = np.expand_dims(quantized.scale, contracted)
    terms = spec.split('->')[0].split(',')
    axes = tuple(
      terms[0].index(terms[1][i]) - (len(terms[0]) if '...' in spec else 0)
      for i in contracted
    )
    peak = np.abs(x).max(axes, keepdims=True)
    x_codes = np.rint(x * (np.float32(127) / peak)).astype(int)
    sums = np.einsum(spec, x_codes, codes.astype(int))
    # The scales alone, broadcast to the result, are the size of one summand.
    count = np.prod([w.shape[i] for i in contracted])
    scales = np.einsum(
      spec,
      np.broadcast_to(peak / 127, x.shape).astype(float),
      np.broadcast_to(w_scale, w.shape).astype(float),
    )
    np.testing.assert_allclose(got, sums * (scales / count), rtol=1e-6)
    np.testing.assert_array_equal(np.rint(got / (scales / count)), sums)
    exact = np.einsum(spec, x, w)
    self.assertLess(np.abs(got - exact).mean(), 0.02 * np.abs(exact).mean())

  @parameterized.parameters(
    (128, True, False, False),
    (129, True, False, True),
    (129, False, False, False),
    (129, True, True, False),
  )
  def test_many_rows_may_be_finer(self, rows, prefers, is_decode, fine):
    if not kernels.can_multiply():
      self.skipTest('this processor leaves int8 products to XLA')
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 96)).astype(np.float32)
    quantized = quant.quantize(rng.normal(size=(96, 40)), (0,))
    with mock.patch.object(
      kernels, 'prefers_fine_prompts', return_value=prefers
    ):
      with einsum_lib.decoding() if is_decode else contextlib.nullcontext():
        got = einsum_lib.einsum('mk,kn->mn', x, quantized)
    codes = np.asarray(quantized.values, np.float32)
    largest = np.float32(32512 if fine else 127)
    peak = np.abs(x).max(1, keepdims=True)
    rounded = np.rint(x * (largest / peak)) * (peak / largest)
    expected = rounded @ codes.T * np.asarray(quantized.scale)
    np.testing.assert_allclose(got, expected, atol=1e-4)

  @parameterized.product(rows=(1, 129), by_kernel=(True, False))
  def test_fine_activations_are_near_floats(self, rows, by_kernel):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 96)).astype(np.float32)
    quantized = quant.quantize(
      rng.normal(size=(96, 40)), (0,), activations=quant.FINE
    )
    has = by_kernel and kernels.has_int8_dots()
    with mock.patch.object(kernels, 'has_int8_dots', return_value=has):
      got = einsum_lib.einsum('mk,kn->mn', x, quantized)
    codes = np.asarray(quantized.values, np.float32)
    if has and kernels.can_multiply(2):
      largest = np.float32(32512)
      peak = np.abs(x).max(1, keepdims=True)
      x = np.rint(x * (largest / peak)) * (peak / largest)
    expected = x @ codes.T * np.asarray(quantized.scale)
    np.testing.assert_allclose(got, expected, atol=1e-4)

  @parameterized.parameters('bnth,nhd->btd', '...d,df->...f')
  def test_fp8_products_are_those_of_codes(self, spec):
    x, w, contracted = _operands(spec)
    quantized = quant.quantize(w, contracted, quant.FP8)
    got = jax.jit(lambda x, w: einsum_lib.einsum(spec, x, w))(x, quantized)
    codes = np.asarray(quantized.values, np.float32)
    matrix = codes * np.asarray(quantized.scale).reshape(-1, 1)
    form = matrix_form.from_einsum(spec, jnp.asarray(x))
    rows = quant.quantize_along(form.matrix(x), -1, quantized.values.dtype)
    rounded = np.asarray(rows.values, np.float32) * np.asarray(rows.scale)
    expected = rounded @ matrix.T
    np.testing.assert_allclose(got.ravel(), expected.ravel(), atol=1e-4)

  @parameterized.parameters(None, 'int8')
  def test_bias_is_added(self, quantization):
    x, w, contracted = _operands('...d,dv->...v')
    if quantization:
      w = quant.quantize(w, contracted)
    bias = np.random.default_rng(1).normal(size=_SIZES['v'])
    bias = jnp.asarray(bias, jnp.float32)
    plain = einsum_lib.einsum('...d,dv->...v', x, w)
    got = einsum_lib.einsum('...d,dv->...v', x, w, bias)
    np.testing.assert_allclose(got, plain + bias, atol=1e-5)

  @parameterized.parameters(3, 200)
  def test_gated_is_two_products(self, rows):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 24)).astype(np.float32)
    gate, up = rng.normal(size=(2, 24, 40)).astype(np.float32)
    bias = rng.normal(size=40).astype(np.float32)
    spec = '...d,df->...f'
    for part in (
      lambda w: w,
      lambda w: quant.quantize(w, [0]),
      lambda w: quant.quantize(w, [0], activations='float32'),
      lambda w: quant.quantize(w, [0], activations=quant.FINE),
    ):
      weights = part(gate), part(up)
      got = jax.jit(einsum_lib.silu_gated, static_argnums=0)(
        spec, x, *weights, bias
      )
      gates = einsum_lib.einsum(spec, x, weights[0])
      fed = einsum_lib.einsum(spec, x, weights[1], bias)
      np.testing.assert_allclose(
        got, jax.nn.silu(gates) * fed, rtol=1e-5, atol=1e-6
      )

  def test_a_row_does_not_depend_on_others(self):
    x, w, contracted = _operands('...d,df->...f')
    quantized = quant.quantize(w, contracted)
    x[0, 0] *= 1000
    together = einsum_lib.einsum('...d,df->...f', x, quantized)
    for part in (np.s_[1:, 2:], np.s_[:, :2], np.s_[1:, 1:]):
      alone = einsum_lib.einsum('...d,df->...f', x[part], quantized)
      np.testing.assert_array_equal(together[part], alone)

  @parameterized.parameters(('float32', 1e-5), ('bfloat16', 1e-2))
  def test_weights_alone_are_quantized(self, dtype, tolerance):
    for spec in ('btd,cnhd->cbnth', 'snkh,nhd->skd', '...d,df->...f'):
      x, w, contracted = _operands(spec)
      quantized = quant.quantize(w, contracted, dtype)
      got = jax.jit(lambda x, w: einsum_lib.einsum(spec, x, w))(x, quantized)
      codes = _codes(quantized, w, contracted)
      rounded = codes * np.expand_dims(quantized.scale, contracted)
      expected = np.einsum(spec, x, rounded)
      np.testing.assert_allclose(
        got, expected, atol=tolerance * np.abs(expected).max()
      )

  @parameterized.parameters(
    ('snkh,snht->snkt', -2),
    ('snkt,snth->snkh', -1),
    ('bnth,bnhu->bntu', -2),
  )
  def test_quantized_rows_are_those_they_stand_for(self, spec, axis):
    sizes = _SIZES | dict(t=9, u=7)
    rng = np.random.default_rng(0)
    # bfloat16 represents these values exactly, so all products are exact too.
    x, w = (
      rng.integers(-64, 65, [sizes[d] for d in term]).astype(np.float32)
      for term in spec.split('->')[0].split(',')
    )
    w *= (
      2.0
      ** rng.integers(
        -5, 6, [n for i, n in enumerate(w.shape) if i != w.ndim + axis]
      )[*[slice(None)] * (w.ndim + axis), None]
    )
    quantized = quant.quantize_along(jnp.asarray(w), axis)
    # With a power of two as the scale, the result is exact too.
    scale = 2.0 ** np.round(np.log2(np.asarray(quantized.scale)))
    quantized = quant.QuantizedRows(
      quantized.values, jnp.asarray(scale, jnp.float32), axis
    )
    got = einsum_lib.einsum(spec, jnp.asarray(x), quantized)
    expected = np.einsum(spec, x, np.asarray(quantized.values) * scale)
    np.testing.assert_allclose(got, expected, rtol=1e-6)

  @parameterized.parameters('float32', 'bfloat16')
  def test_float_is_computed_in_the_weights_type(self, dtype):
    spec = 'snkh,snhd->snkd'  # KV.
    x, w, _ = _operands(spec)
    got = einsum_lib.einsum(spec, x, jnp.asarray(w, dtype))
    self.assertEqual(got.dtype, jnp.float32)
    x, w = (np.asarray(jnp.asarray(a, dtype), np.float64) for a in (x, w))
    np.testing.assert_allclose(got, x @ w, rtol=1e-4, atol=1e-4)

  @parameterized.product(rows=(1, 16, 17, 300), spec=('kf', 'fk'))
  def test_activations_beside_bfloat16_weights_stay_float32(self, rows, spec):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 96)).astype(np.float32)
    w = jnp.asarray(rng.normal(size=(96, 70)), jnp.bfloat16)
    exact = x.astype(float) @ np.asarray(w, float)
    w = w.T if spec == 'fk' else w
    run = jax.jit(lambda x, w: einsum_lib.einsum(f'mk,{spec}->mf', x, w))
    with mock.patch.object(
      kernels, 'has_bfloat16_products', return_value=False
    ):
      got = run(x, w)
    np.testing.assert_allclose(got, exact, atol=1e-5)

  @parameterized.product(
    spec=(
      'btd,nchd->cbnth',
      'bnth,nhd->btd',
      'snkh,nhd->skd',
      '...d,dv->...v',
      'btd,cdh->bcth',  # What is contracted is neither first nor last.
      'snkh,snhd->snkd',  # KV, whose slots are those of x.
    ),
    rows=('few', 'many'),
  )
  def test_float32_products_agree_with_double_precision(self, spec, rows):
    x, w, _ = _operands(spec)
    if rows == 'many':  # XLA computes them.
      axis = 0 if '...' in spec else spec.index('t' if 't' in spec else 'k')
      x = np.concatenate([x] * 20, axis)
    elif spec != 'snkh,snhd->snkd':
      jaxpr = str(
        jax.make_jaxpr(lambda x, w: einsum_lib.einsum(spec, x, w))(x, w)
      )
      self.assertEqual('saxml_multiply_floats' in jaxpr, spec[4:7] != 'cdh')
    exact = np.einsum(spec, x.astype(float), w)
    got = jax.jit(lambda x, w: einsum_lib.einsum(spec, x, w))(x, w)
    self.assertEqual(got.dtype, jnp.float32)
    np.testing.assert_allclose(got, exact, atol=1e-5)

  def test_batch_dims_of_a_quantized_weight_are_refused(self):
    w = quant.quantize(np.ones((2, 8, 4), np.float32), (1,))
    with self.assertRaisesRegex(ValueError, r"batch dims \['n'\]"):
      einsum_lib.einsum('nh,nhd->nd', jnp.ones((2, 8)), w)

  def test_weights_are_cast_when_they_are_needed(self):
    struct = jax.ShapeDtypeStruct
    size, count = 512, 8
    weight = quant.QuantizedArray(
      struct((size, size), jnp.int8), struct((size,), jnp.float32), 'bfloat16'
    )

    def run(x, weights):
      for w in weights:
        x = jnp.tanh(einsum_lib.einsum('td,df->tf', x, w))
      return x

    program = jax.jit(run).lower(
      struct((200, size), jnp.float32), (weight,) * count
    )
    memory = program.compile().memory_analysis()
    # The memory holds activations and one or two weights. It does not hold all
    # weights in bfloat16 at once.
    self.assertLess(memory.temp_size_in_bytes, count * size**2)


if __name__ == '__main__':
  absltest.main()
