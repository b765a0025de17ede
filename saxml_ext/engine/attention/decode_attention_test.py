"""Tests that the kernel and XLA read the same keys."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.attention import steps as steps_lib
from saxml_ext.engine.numerics import quant

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=48,
  num_heads=3,
  head_dim=16,
  hidden_dim=96,
  rotary_dim=8,
  vocab_size=64,
)
_SLOTS, _BEAMS, _WIDTH = 6, 4, 8


def _random(rng: np.random.Generator, block: cache.Block) -> cache.Block:
  """Returns a block of the same shape with random contents."""

  def fill(kv: cache.KV) -> cache.KV:
    x = jnp.asarray(rng.normal(size=kv.shape), jnp.float32)
    if isinstance(kv, quant.QuantizedRows):
      return quant.quantize_along(x, kv.axis)
    return x.astype(kv.dtype)

  return cache.Block(
    *[tuple(map(fill, kv)) for kv in (block.keys, block.values)]
  )


def _history(rng, dtype):
  """Returns a history, the block being written, and the mask of used slots."""

  def block(length, suffix):
    return _random(
      rng,
      cache.empty_block(_MODEL, _SLOTS, length, dtype, suffix=suffix),
    )

  # Slot 0 is new, the results of 1 and 4 are unused, and the others differ in
  # age.
  lengths = jnp.asarray([20, -1, 33, 1, -1, 40], jnp.int32)
  ages = np.asarray([1, 9, 24, 17, 0, 5])
  steps = 3 * _WIDTH
  ancestry = rng.integers(0, _BEAMS, (_SLOTS, _BEAMS, steps))
  ancestry[:, :, ::3] = ancestry[:, :1, ::3]  # Shared by all beams.
  unborn = np.arange(steps) < (steps - ages)[:, None, None]
  ancestry = np.where(unborn, steps_lib.NOTHING, ancestry)
  ancestry[:, :, -1] = np.arange(_BEAMS)  # Keys of this step.
  history = decode_attention.History(
    lengths,
    (block(32, False), block(8, False)),
    tuple(block(_WIDTH * _BEAMS, True) for _ in range(2)),
    [jnp.asarray(a, jnp.int8) for a in np.split(ancestry, 3, -1)],
  )
  return history, block(_WIDTH * _BEAMS, True), np.asarray(lengths) >= 0


class DecodeAttentionTest(parameterized.TestCase):
  @parameterized.parameters(
    ('float32', 1e-5), ('bfloat16', 1e-2), ('int8', 1e-2)
  )
  def test_kernel_agrees_with_xla(self, dtype, tolerance):
    rng = np.random.default_rng(0)
    history, current, waited = _history(rng, dtype)
    shape = (_SLOTS, _MODEL.num_heads, _BEAMS, _MODEL.head_dim)
    queries = jnp.asarray(rng.normal(size=shape), jnp.float32)
    for layer in range(_MODEL.num_layers):
      got, expected = (
        np.asarray(jax.jit(attend, static_argnums=2)(queries, current, layer))
        for attend in (
          decode_attention.over(history),
          decode_attention.by_xla(history),
        )
      )
      scale = np.abs(expected[waited]).max()
      np.testing.assert_allclose(
        got[waited], expected[waited], atol=tolerance * scale
      )
      self.assertTrue(np.isfinite(expected).all())
      np.testing.assert_array_equal(got[~waited], 0)


if __name__ == '__main__':
  absltest.main()
