"""Tests costs and prices."""

from absl.testing import absltest

from harness.pages import costs
from harness.results import entry as entry_lib


class CostsTest(absltest.TestCase):
  def performance(self, **changes):
    fields = {'seconds': 60.0, 'samples': 2400, 'tokens_per_second': 100.0}
    return entry_lib.Performance(
      True, 'samples_per_second', 40.0, **(fields | changes)
    )

  def test_cost(self):
    cost = costs.cost(self.performance(), 3.6)
    self.assertAlmostEqual(cost.run, 0.06)
    self.assertAlmostEqual(cost.per_1000_samples, 0.025)
    self.assertAlmostEqual(cost.per_million_tokens, 10.0)

  def test_missing_values_have_no_cost(self):
    without = costs.cost(self.performance(tokens_per_second=None), 3.6)
    self.assertIsNone(without.per_million_tokens)
    self.assertIsNone(costs.cost(self.performance(samples=0), 3.6))

  def test_prices(self):
    prices = costs.parse_prices(['4.2', 'a:b:1', 'TPU v5e:12'])
    self.assertEqual(prices, {'': 4.2, 'a:b': 1.0, 'TPU v5e': 12.0})
    self.assertEqual(costs.price_of(prices, 'id', 'TPU v5e'), 12.0)
    self.assertEqual(costs.price_of(prices, 'id', 'other'), 4.2)
    self.assertIsNone(costs.price_of({}, 'id'))

  def test_wrong_prices(self):
    for text in ('much', 'a:-1', 'a:nan', 'a:'):
      with self.assertRaisesRegex(ValueError, 'is not a price'):
        costs.parse_prices([text])
    with self.assertRaisesRegex(ValueError, 'two prices'):
      costs.parse_prices(['1', '2'])


if __name__ == '__main__':
  absltest.main()
