"""Tests of `Histogram`."""

from absl.testing import absltest

from saxml_ext.server.scheduling import stats


class HistogramTest(absltest.TestCase):
  def test_counts_are_cumulative_and_bounds_included(self):
    counted = stats.Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
      counted.observe(value)
    found = counted.snapshot()
    self.assertEqual(found.bounds, (1.0, 2.0))
    self.assertEqual(found.counts, (2, 4, 5))
    self.assertEqual(found.total, 14.0)

  def test_empty_histogram_has_zero_counts(self):
    found = stats.Histogram().snapshot()
    self.assertEqual(found.counts, (0,) * (len(stats.SECONDS) + 1))
    self.assertEqual(found.total, 0.0)


if __name__ == '__main__':
  absltest.main()
