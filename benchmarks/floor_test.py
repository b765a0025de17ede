from absl.testing import absltest

from benchmarks import floor
from benchmarks import models

_SIZES = models.Sizes(layers=1, dim=2, hidden=8, vocab=10)


class FloorTest(absltest.TestCase):
  def test_counts_by_hand(self):
    shape = floor.Shape(_SIZES, slots=2, beams=3, dtype='int8')
    # The qkv and post weights have 4 * 4 values, up and down have 2 * 16.
    self.assertEqual(_SIZES.layer_weights, 48)
    self.assertEqual(shape.weight_bytes, 68)
    # There are keys and values of 5 tokens with width 2, in float32.
    self.assertEqual(shape.kv_bytes(5), 80)
    rates = floor.Rates(read=1.0, products=1e9, attention=1e9)
    bound = floor.floor(shape, [(4, 3)], rates)
    # Prefill has 2 * (48 * 4 + 20) operations.
    self.assertAlmostEqual(bound.prefill_seconds, (424 + 64) / 1e9)
    # Each of two steps shares the weights with another slot, which are 68
    # bytes. The KV of 4 + 2 tokens is read twice, which are 192 bytes.
    self.assertAlmostEqual(bound.decode_seconds, 68 + 192, places=3)
    # The products of 3 beams over two steps have 2 * 68 * 3 * 2 operations.
    # Attention over 6 tokens has 4 * 3 * 2 * 6 * 2, and prefill has 2 * 2 * 16.
    self.assertAlmostEqual(bound.operations, 424 + 816 + 288 + 64)

  def test_the_slower_of_reading_and_computing_counts(self):
    shape = floor.Shape(_SIZES, 2, 3, 'float32')
    slow_read = floor.Rates(1.0, 1e9, 1e9)
    slow_products = floor.Rates(1e9, 1.0, 1e9)
    a = floor.floor(shape, [(4, 3)], slow_read)
    b = floor.floor(shape, [(4, 3)], slow_products)
    self.assertAlmostEqual(a.decode_seconds, a.read_seconds)
    self.assertAlmostEqual(b.decode_seconds, 816, places=3)

  def test_grouped_keys_and_a_gate(self):
    sizes = models.Sizes(3, 8, 16, 10, kv_dim=2, gated=True)
    # Queries and post have 8 * 8 weights, and keys and values have 8 * 2.
    self.assertEqual(sizes.layer_weights, 3 * (2 * 64 + 2 * 16 + 3 * 128))
    shape = floor.Shape(sizes, 1, 1, 'q8_0', 'float16')
    self.assertEqual(shape.kv_bytes(5), 2 * 3 * 2 * 5 * 2)
    self.assertEqual(shape.weight_bytes, (3 * 544 + 80) * 34 / 32)


if __name__ == '__main__':
  absltest.main()
