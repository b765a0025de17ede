"""Tests that a row of prompts writes what separate prompts do."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import packing

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=2,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=64,
)
_SLOTS, _LENGTH = 5, 12


class PackingTest(parameterized.TestCase):
  def test_positions_and_slots_follow_from_lengths(self):
    """Checks a prompt of one token, unused prompts and padding."""
    row = packing.Row.from_lengths(
      9, jnp.asarray([3, 1, 2, 0]), jnp.asarray([4, 0, 2, 5]), _SLOTS
    )
    self.assertEqual(row.positions.tolist(), [0, 1, 2, 0, 0, 1, 0, 1, 2])
    self.assertEqual(row.slots.tolist(), [4, 4, 4, 0, 2, 2, 5, 5, 5])
    self.assertEqual(row.last.tolist(), [2, 3, 5, 5])

  @parameterized.product(
    dtype=('float32', 'bfloat16', 'int8'), stacked=(False, True)
  )
  def test_keys_and_values_are_written_to_their_slots(self, dtype, stacked):
    rng = np.random.default_rng(0)
    lengths, slots, size = (_LENGTH, 1, 5), (3, 0, 4), 24

    def draw(*shape: int) -> jax.Array:
      x = rng.normal(size=(1, _MODEL.kv_heads, *shape))
      return jnp.asarray(x, jnp.float32)

    block = cache.empty_block(_MODEL, _SLOTS, _LENGTH, dtype, stacked)
    block = jax.tree.map(lambda x: x + jnp.ones_like(x), block)
    keys = cache.keys_as(draw(_MODEL.head_dim, size), dtype)
    values = cache.rows_as(draw(size, _MODEL.head_dim), dtype)
    layer = jnp.int32(1) if stacked else 1
    expected, begin = block, 0
    for length, slot in zip(lengths, slots):
      own = slice(begin, begin + length)
      begin += length
      expected = cache.insert(
        expected,
        layer,
        jnp.asarray([slot]),
        0,
        jax.tree.map(lambda x, own=own: x[..., own], keys),
        jax.tree.map(lambda x, own=own: x[:, :, own], values),
      )
    row = packing.Row.from_lengths(
      size,
      jnp.asarray([*lengths, 0]),
      jnp.asarray([*slots, _SLOTS]),
      _SLOTS,
    )
    got = row.insert(block, layer, keys, values)
    jax.tree.map(np.testing.assert_array_equal, got, expected)


if __name__ == '__main__':
  absltest.main()
