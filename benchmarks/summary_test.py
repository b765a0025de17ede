from absl.testing import absltest

from benchmarks import summary


def _sample(tokens, cpu):
  return summary.Sample(tokens, cpu, 2 * cpu, 100)


class SummaryTest(absltest.TestCase):
  def test_spread(self):
    samples = [_sample(10, 1 / n) for n in (5, 1, 4, 2, 3)]
    spread = summary.rates(samples)
    self.assertAlmostEqual(spread.median, 30)
    self.assertAlmostEqual(spread.low, 20)
    self.assertAlmostEqual(spread.high, 40)
    self.assertAlmostEqual(spread.least, 10)
    self.assertAlmostEqual(spread.most, 50)
    self.assertEqual(summary.Spread.from_values([7.0]).low, 7.0)
    self.assertAlmostEqual(summary.median(samples, 'wall_seconds'), 2 / 3)

  def test_ratio_is_of_the_same_round(self):
    # A slow second round slows down both, so the ratio stays 2.
    ours = [_sample(20, 1), _sample(20, 10), _sample(20, 1)]
    theirs = [_sample(10, 1), _sample(10, 10), _sample(10, 1)]
    self.assertAlmostEqual(summary.ratio(ours, theirs), 2)


if __name__ == '__main__':
  absltest.main()
