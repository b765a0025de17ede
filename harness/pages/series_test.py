"""Tests the aggregates of timelines."""

from absl.testing import absltest
import numpy as np

from harness.pages import series
from harness.pages.testing import jobs
from harness.rules import rounds


class SeriesTest(absltest.TestCase):
  def samples(self, count=1000, scenario=rounds.SERVER):
    return series.from_times(jobs.times(count, scenario))

  def test_arrays_hold_the_timeline(self):
    times = jobs.times(20, rounds.SERVER)
    samples = series.from_times(times)
    self.assertLen(samples, 20)
    self.assertEqual(
      samples.tokens.tolist(), [sample.tokens for sample in times]
    )
    np.testing.assert_allclose(
      samples.latency, samples.waiting + samples.answering
    )

  def test_empty_times_have_no_series(self):
    with self.assertRaisesRegex(ValueError, 'has no samples'):
      series.from_times([])

  def test_windows_hold_every_sample_once(self):
    samples = self.samples()
    windows = series.windows(samples)
    self.assertAlmostEqual(
      windows.width * len(windows.middles), samples.seconds
    )
    answered = windows.samples_per_second * windows.width
    self.assertAlmostEqual(answered.sum(), 1000)
    tokens = windows.tokens_per_second.sum() * windows.width
    self.assertAlmostEqual(tokens, samples.tokens.sum())
    waiting = np.nansum(windows.waiting * answered)
    self.assertAlmostEqual(waiting, samples.waiting.sum())

  def test_number_of_windows_is_limited(self):
    self.assertLen(series.windows(self.samples(25)).middles, 2)
    self.assertLen(series.windows(self.samples(5000)).middles, 120)

  def test_one_window_is_a_line_over_the_run(self):
    samples = self.samples(15)
    windows = series.windows(samples)
    self.assertEqual(windows.middles.tolist(), [0.0, samples.seconds])
    rate = 15 / samples.seconds
    np.testing.assert_allclose(windows.samples_per_second, [rate, rate])
    np.testing.assert_allclose(windows.waiting, [samples.waiting.mean()] * 2)

  def test_a_multi_stream_query_ends_with_its_last_sample(self):
    samples = self.samples(80, rounds.MULTI_STREAM)
    latency = series.query_latency(samples, rounds.MULTI_STREAM)
    self.assertLen(latency, 10)
    np.testing.assert_allclose(
      latency, samples.latency.reshape(10, 8).max(axis=1)
    )
    self.assertLen(series.query_latency(samples, rounds.SERVER), 80)

  def test_percentiles_are_values_of_the_run(self):
    values = np.arange(1.0, 101.0)
    self.assertEqual(series.percentile(values, 90), 90)
    self.assertEqual(series.percentile(values, 99.9), 100)

  def test_distribution_rises_to_the_highest(self):
    values = self.samples().latency
    at, percents = series.distribution(values)
    self.assertTrue((np.diff(at) >= 0).all())
    self.assertEqual((at[0], at[-1]), (values.min(), values.max()))
    self.assertEqual((percents[0], percents[-1]), (0, 100))

  def test_histograms_count_every_sample(self):
    samples = self.samples()
    for values in (samples.latency, samples.tokens):
      middles, counts = series.histogram(values)
      self.assertEqual(counts.sum(), 1000)
      self.assertLen(middles, len(counts))
    same = series.histogram(np.full(5, 7))
    self.assertEqual((same[0].tolist(), same[1].tolist()), ([7], [5]))

  def test_token_bins_are_whole_numbers(self):
    middles, counts = series.histogram(np.array([3, 3, 5]))
    self.assertEqual(middles.tolist(), [3, 4, 5])
    self.assertEqual(counts.tolist(), [2, 0, 1])

  def test_thinning_keeps_order_and_the_highest(self):
    rng = np.random.default_rng(0)
    x, y = rng.permutation(20000), rng.exponential(size=20000)
    kept = series.thin(x, y, 1000)
    self.assertBetween(len(kept), 900, 1000)
    self.assertTrue((np.diff(x[kept]) > 0).all())
    self.assertIn(y.argmax(), kept)
    self.assertLen(series.thin(x[:50], y[:50], 1000), 50)


if __name__ == '__main__':
  absltest.main()
