"""Tests of `Histogram`."""

from absl.testing import absltest

from saxml_ext.server.scheduling import stats


class HistogramTest(absltest.TestCase):
  def test_counts_are_cumulative_and_bounds_included(self):
    counted = stats.Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
      counted.observe(value)
    counts = counted.snapshot()
    self.assertEqual(counts.bounds, (1.0, 2.0))
    self.assertEqual(counts.counts, (2, 4, 5))
    self.assertEqual(counts.total, 14.0)

  def test_empty_histogram_has_zero_counts(self):
    counts = stats.Histogram().snapshot()
    self.assertEqual(counts.counts, (0,) * (len(stats.SECONDS) + 1))
    self.assertEqual(counts.total, 0.0)


if __name__ == '__main__':
  absltest.main()
