from absl.testing import absltest

from benchmarks import floor


class FloorTest(absltest.TestCase):
  def test_counts_by_hand(self):
    shape = floor.Shape(
      layers=1, dim=2, hidden=8, vocab=10, slots=2, beams=3, dtype='int8'
    )
    # qkv and post: 4 * 4; up and down: 2 * 16.
    self.assertEqual(shape.layer_weights, 48)
    self.assertEqual(shape.weight_bytes, 68)
    # Keys and values of 5 tokens, 2 wide, in float32.
    self.assertEqual(shape.kv_bytes(5), 80)
    rates = floor.Rates(read=1.0, decode=1e9, prefill=1.0, attention=1e9)
    found = floor.floor(shape, [(4, 3)], rates)
    # 2 * (48 * 4 + 20) of prefill.
    self.assertAlmostEqual(found.prefill_seconds, 424, places=3)
    # Two steps share the weights with another slot: 68 bytes, and the KV of
    # 4 + 2 tokens twice, 192 bytes.
    self.assertAlmostEqual(found.decode_seconds, 68 + 192, places=3)
    # Products of 3 beams over two steps 2 * 68 * 3 * 2; attention over 6
    # tokens 4 * 3 * 2 * 6 * 2; that of prefill 2 * 2 * 16.
    self.assertAlmostEqual(found.operations, 424 + 816 + 288 + 64)

  def test_the_slower_of_reading_and_computing_counts(self):
    shape = floor.Shape(1, 2, 8, 10, 2, 3, 'float32')
    slow_read = floor.Rates(1.0, 1e9, 1e9, 1e9)
    slow_products = floor.Rates(1e9, 1.0, 1e9, 1e9)
    a = floor.floor(shape, [(4, 3)], slow_read)
    b = floor.floor(shape, [(4, 3)], slow_products)
    self.assertAlmostEqual(a.decode_seconds, a.read_seconds)
    self.assertAlmostEqual(b.decode_seconds, 816, places=3)


if __name__ == '__main__':
  absltest.main()
