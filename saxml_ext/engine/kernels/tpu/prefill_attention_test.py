"""Compares the kernel, as plain operations on CPU, with the plain engine."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import components
from saxml_ext.engine import rotary
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.kernels.tpu import prefill_attention
from saxml_ext.engine.numerics import quant

_HEADS = 2


class PrefillAttentionTest(parameterized.TestCase):
  @parameterized.parameters(
    (1, 128, 128, 64, 'int8'),
    (2, 640, 128, 128, 'int8'),
    (1, 256, 256, 64, 'bfloat16'),
  )
  def test_kernel_agrees_with_the_plain_engine(
    self, batch, length, width, rotated, kv_dtype
  ):
    rng = np.random.default_rng(0)
    shape = (batch, length, _HEADS, 3, width)
    qkv = jnp.asarray(rng.normal(size=shape), jnp.bfloat16)
    sin, cos = rotary.table(length, rotated, 10000.0)
    got = prefill_attention.attend(
      qkv.reshape(batch, length, -1), sin, cos, width, kv_dtype, interpret=True
    )

    q, k, v = qkv.astype(jnp.float32).transpose(3, 0, 2, 1, 4)
    turned = components.rotate(k, sin, cos).transpose(0, 1, 3, 2)
    keys, values = cache.keys_as(turned, kv_dtype), cache.rows_as(v, kv_dtype)
    mixed = jax.jit(attention.attend_causal)(
      components.rotate(q, sin, cos), keys, values
    )
    # bfloat16 rounds the queries, the weights and the result by 1/256 at most.
    np.testing.assert_allclose(
      got.mixed.astype(jnp.float32).reshape(batch, length, _HEADS, width),
      mixed.transpose(0, 2, 1, 3),
      atol=0.02 * np.abs(mixed).max(),
    )
    if got.key_scale is not None and got.value_scale is not None:
      for code, scale, expected in (
        (got.keys, got.key_scale, keys),
        (got.values, got.value_scale, values),
      ):
        assert isinstance(expected, quant.QuantizedRows)
        np.testing.assert_allclose(
          scale.reshape(expected.scale.shape), expected.scale, rtol=1e-5
        )
        # A different last bit of the rotation may change the rounding of a
        # code.
        difference = np.abs(code.astype(int) - expected.values.astype(int))
        self.assertLessEqual(difference.max(), 1)
        self.assertLess(difference.mean(), 1e-3)
    else:
      for code, expected in ((got.keys, keys), (got.values, values)):
        assert isinstance(expected, jax.Array)
        np.testing.assert_allclose(
          code.astype(jnp.float32), expected.astype(jnp.float32), rtol=1e-2
        )

  def test_supported_sizes_and_formats(self):
    self.assertTrue(prefill_attention.fits(256, 'int8'))
    self.assertTrue(prefill_attention.fits(128, 'bfloat16'))
    self.assertFalse(prefill_attention.fits(64, 'int8'))
    self.assertFalse(prefill_attention.fits(256, 'float32'))


if __name__ == '__main__':
  absltest.main()
