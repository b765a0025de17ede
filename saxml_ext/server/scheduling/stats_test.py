"""Tests of the statistics of a method."""

import asyncio
from unittest import mock

from absl.testing import absltest

from saxml_ext.server.scheduling import stats


class _Clock:
  def __init__(self):
    self.now = 1000.0

  def __call__(self) -> float:
    return self.now


class MethodStatsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.clock = _Clock()
    self.stats = stats.MethodStats(self.clock)

  def test_empty_stats_are_zero(self):
    figures = self.stats.snapshot()
    self.assertEqual(figures.successes_per_second, 0)
    self.assertEqual(figures.errors_per_second, 0)
    self.assertIsNone(figures.mean)
    self.assertIsNone(figures.p99)

  def test_rates_cover_one_minute(self):
    for _ in range(30):
      self.stats.succeeded(0.5)
      self.clock.now += 1
    self.stats.failed()
    figures = self.stats.snapshot()
    self.assertAlmostEqual(figures.successes_per_second, 0.5)
    self.assertAlmostEqual(figures.errors_per_second, 1 / 60)

  def test_totals_count_from_the_start(self):
    self.stats.succeeded(0.3)
    for code in ('CANCELLED', 'RESOURCE_EXHAUSTED', 'CANCELLED'):
      self.stats.failed(code)
    self.stats.expired()
    for first in (0.2, None):
      self.stats.answered(
        prompt_tokens=7,
        output_tokens=4,
        queued=0.1,
        first_token=first,
        in_slot=2.0,
      )
    self.clock.now += 1000
    totals = self.stats.totals()
    self.assertEqual(
      totals.codes, {'OK': 1, 'CANCELLED': 2, 'RESOURCE_EXHAUSTED': 1}
    )
    self.assertEqual(totals.expired, 1)
    self.assertEqual((totals.prompt_tokens, totals.output_tokens), (14, 8))
    counts = {name: h.counts[-1] for name, h in totals.histograms.items()}
    self.assertEqual(
      counts,
      {
        'latency': 1,
        'queue': 2,
        'first_token': 1,
        'per_token': 2,
        'batch_size': 0,
      },
    )
    self.assertAlmostEqual(totals.histograms['per_token'].total, 2 * 0.5)

  def test_events_older_than_the_window_are_dropped(self):
    self.stats.succeeded(9.0)
    self.clock.now += 61
    self.stats.succeeded(1.0)
    figures = self.stats.snapshot()
    self.assertAlmostEqual(figures.successes_per_second, 1 / 60)
    self.assertAlmostEqual(figures.mean, 1.0)
    self.assertAlmostEqual(figures.p99, 1.0)

  def test_window_ends_after_sixty_seconds(self):
    self.stats.succeeded(9.0)
    self.stats.failed()
    self.clock.now += 59
    figures = self.stats.snapshot()
    self.assertAlmostEqual(figures.successes_per_second, 1 / 60)
    self.assertAlmostEqual(figures.errors_per_second, 1 / 60)
    self.assertEqual(figures.p50, 9.0)
    self.clock.now += 1
    figures = self.stats.snapshot()
    self.assertEqual(figures.successes_per_second, 0)
    self.assertEqual(figures.errors_per_second, 0)
    self.assertIsNone(figures.p50)

  def test_percentiles_of_few_values_are_nearest_rank(self):
    # A nearest-rank percentile is the smallest latency that at least this
    # percentage of values does not exceed.
    for latencies, expected in (
      ([1.0], (1.0, 1.0, 1.0)),
      ([1.0, 2.0], (1.0, 2.0, 2.0)),
      ([1.0, 2.0, 3.0], (2.0, 3.0, 3.0)),
      ([float(i) for i in range(1, 21)], (10.0, 19.0, 20.0)),
      ([float(i) for i in range(1, 52)], (26.0, 49.0, 51.0)),
    ):
      fresh = stats.MethodStats(self.clock)
      for latency in latencies:
        fresh.succeeded(latency)
      figures = fresh.snapshot()
      self.assertEqual((figures.p50, figures.p95, figures.p99), expected)

  def test_percentiles_are_nearest_rank(self):
    for latency in range(100, 0, -1):
      self.stats.succeeded(float(latency))
    figures = self.stats.snapshot()
    self.assertEqual(
      (figures.p50, figures.p95, figures.p99), (50.0, 95.0, 99.0)
    )
    self.assertAlmostEqual(figures.mean, 50.5)

  def test_last_ten_batches_are_kept(self):
    for size in range(12):
      self.stats.batch(size)
    self.assertEqual(self.stats.snapshot().batch_sizes, tuple(range(2, 12)))

  def test_expired_requests_are_counted(self):
    self.stats.expired()
    self.stats.expired()
    self.assertEqual(self.stats.snapshot().expired, 2)


class ActivityTest(absltest.TestCase):
  async def _calls(self) -> None:
    activity = stats.Activity()
    for _ in range(3):
      activity.begin('/sax/a/m', 'lm.generate')
    activity.end(failed=False)
    activity.end(failed=True)
    await asyncio.sleep(0.15)  # The first interval has passed.
    activity.end(failed=False)
    await asyncio.sleep(0.3)  # An interval without calls has passed.
    activity.begin('/sax/a/m', 'lm.generate')

  def test_first_call_and_counts_are_logged(self):
    with (
      mock.patch.object(stats, '_WINDOW', 0.1),
      self.assertLogs('absl', 'INFO') as logs,
    ):
      asyncio.run(self._calls())
    first, one, two = (r.getMessage() for r in logs.records)
    self.assertEqual(first, '/sax/a/m: first request, lm.generate')
    self.assertEndsWith(one, ': 1 answered, 1 failed, 1 running')
    self.assertEndsWith(two, ': 1 answered, 0 failed, 0 running')


if __name__ == '__main__':
  absltest.main()
