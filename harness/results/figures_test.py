import re

from absl.testing import absltest

from harness.benchmarks import llama
from harness.loadgen import loadgen_log
from harness.results import figures
from harness.results.testing import logs
from harness.rules import rounds


class PerformanceTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _values(self, run: logs.Run) -> dict[str, object]:
    return loadgen_log.read(run.directory).values

  def _check_common(self, run: logs.Run, scenario: str):
    performance = figures.performance(run.directory, scenario, run.timeline)
    self.assertTrue(performance.valid, performance.summary)
    self.assertGreater(performance.seconds, 0)
    times = loadgen_log.read_timeline(run.timeline)
    self.assertLen(times, performance.samples)
    self.assertSequenceEqual(list(performance.latency_ns), figures.PERCENTILES)
    for item in (performance.latency_ns, performance.first_token_ns):
      self.assertSequenceEqual(list(item.values()), sorted(item.values()))
    self.assertAlmostEqual(
      performance.tokens_per_second,
      2 * performance.samples / max(item.done for item in times),
    )
    self.assertIn(f'Scenario : {scenario}', performance.summary)
    return performance

  def test_offline(self):
    run = logs.make(self._dir, rounds.OFFLINE)
    performance = self._check_common(run, rounds.OFFLINE)
    self.assertEqual(performance.metric, 'samples_per_second')
    self.assertAlmostEqual(
      performance.value,
      performance.samples * 1e9 / self._values(run)['result_max_latency_ns'],
      delta=performance.value * 1e-4,
    )
    self.assertIsNone(performance.early_stopping_ns)

  def test_server(self):
    run = logs.make(self._dir, rounds.SERVER)
    performance = self._check_common(run, rounds.SERVER)
    self.assertEqual(performance.metric, 'queries_per_second')
    shown = re.search(
      r'Completed samples per second +: (\S+)', performance.summary
    )
    # The summary rounds the exact rate. The detail log has a rounded rate, so
    # both may round to different hundredths.
    self.assertAlmostEqual(float(shown[1]), performance.value, delta=0.0051)
    self.assertIsNone(performance.early_stopping_ns)

  def test_single_stream(self):
    run = logs.make(self._dir, rounds.SINGLE_STREAM)
    performance = self._check_common(run, rounds.SINGLE_STREAM)
    self.assertEqual(performance.metric, 'latency_ns')
    self.assertEqual(performance.value, performance.latency_ns['90.00'])
    self.assertIn(
      f'90.0th percentile latency (ns) : {performance.value:.0f}',
      performance.summary,
    )
    self.assertGreaterEqual(performance.early_stopping_ns, performance.value)

  def test_multi_stream(self):
    run = logs.make(self._dir, rounds.MULTI_STREAM)
    performance = self._check_common(run, rounds.MULTI_STREAM)
    self.assertEqual(performance.metric, 'latency_ns')
    self.assertEqual(performance.value, performance.latency_ns['99.00'])
    self.assertIn(
      f'99.0th percentile latency (ns) : {performance.value:.0f}',
      performance.summary,
    )
    self.assertGreaterEqual(performance.early_stopping_ns, performance.value)
    self.assertEqual(performance.samples % rounds.MULTI_STREAM_SAMPLES, 0)

  def _tokens(self, scenario: str, benchmark=llama.LLAMA):
    run = logs.make(self._dir, scenario, benchmark=benchmark)
    values = self._values(run)
    self.assertEqual(loadgen_log.read(run.directory).problems, ())
    performance = figures.performance(run.directory, scenario, run.timeline)
    self.assertTrue(performance.valid, performance.summary)
    self.assertIsNone(performance.early_stopping_ns)
    if scenario == rounds.OFFLINE:
      self.assertEqual(performance.per_token_ns, {})
      self.assertIsNone(performance.mean_first_token_ns)
      key = 'result_tokens_per_second'
    else:
      for latencies in (performance.first_token_ns, performance.per_token_ns):
        self.assertSequenceEqual(list(latencies), figures.PERCENTILES)
        self.assertSequenceEqual(
          list(latencies.values()), sorted(latencies.values())
        )
      self.assertGreater(performance.mean_first_token_ns, 0)
      # The rest of the two tokens takes this time.
      self.assertGreater(performance.mean_per_token_ns, 0.2e6)
      key = 'result_completed_tokens_per_second'
    self.assertEqual(performance.tokens_per_second, values[key])
    return values, performance

  def test_tokens_of_offline(self):
    _, performance = self._tokens(rounds.OFFLINE)
    self.assertAlmostEqual(
      performance.tokens_per_second,
      2 * performance.value,
      delta=performance.value * 1e-3,
    )

  def test_tokens_of_server_and_interactive(self):
    for scenario, ttft, tpot in (
      (rounds.SERVER, 2_000_000_000, 100_000_000),
      (rounds.INTERACTIVE, 500_000_000, 30_000_000),
    ):
      values, performance = self._tokens(scenario)
      self.assertEqual(values['effective_scenario'], rounds.SERVER)
      self.assertEqual(values['requested_server_ttft_latency'], ttft)
      self.assertEqual(values['requested_server_tpot_latency'], tpot)
      self.assertEqual(performance.metric, 'queries_per_second')

  def test_tokens_of_single_stream(self):
    _, performance = self._tokens(rounds.SINGLE_STREAM, llama.LLAMA_EDGE)
    self.assertEqual(performance.value, performance.latency_ns['90.00'])

  def test_a_short_run_has_no_early_stopping_estimate(self):
    run = logs.make(
      self._dir,
      rounds.SINGLE_STREAM,
      min_duration_ms=1,
      min_query_count=20,
      max_query_count=20,
    )
    performance = figures.performance(run.directory, rounds.SINGLE_STREAM)
    self.assertFalse(performance.valid)
    self.assertIsNone(performance.early_stopping_ns)
    self.assertIsNone(performance.tokens_per_second)
    self.assertEqual(performance.first_token_ns, {})

  def test_logs_of_other_runs_are_refused(self):
    run = logs.make(self._dir, rounds.OFFLINE, 'accuracy')
    with self.assertRaisesRegex(ValueError, 'no logs of a performance run'):
      figures.performance(run.directory, rounds.OFFLINE)
    with self.assertRaisesRegex(ValueError, 'Offline, not Server'):
      figures.performance(run.directory, rounds.SERVER)


def _log(ttft_ms: float, tpot_ms: float) -> loadgen_log.RunLog:
  values = {
    'result_first_token_mean_latency_ns': 1,
    'result_time_to_output_token_mean': 1,
    'result_validity': 'VALID',
  }
  for percentile in figures.PERCENTILES:
    values[f'result_first_token_{percentile}_percentile_latency_ns'] = 1
    values[f'result_time_per_output_token_{percentile}_percentile_ns'] = 1
  values['result_first_token_99.00_percentile_latency_ns'] = ttft_ms * 1e6
  values['result_time_per_output_token_99.00_percentile_ns'] = tpot_ms * 1e6
  return loadgen_log.RunLog('d', '', values, ())


class LimitsTest(absltest.TestCase):
  def _over(self, scenario: str, ttft_ms: float, tpot_ms: float) -> list[str]:
    limits = llama.LLAMA.token_limits.get(scenario)
    return figures.over_limits(_log(ttft_ms, tpot_ms), limits)

  def test_a_run_below_the_limits_passes(self):
    self.assertEmpty(self._over(rounds.INTERACTIVE, 499.999, 29.999))
    self.assertEmpty(self._over(rounds.SERVER, 1999.999, 99.999))
    # There is no limit in Offline and for other benchmarks.
    self.assertEmpty(figures.over_limits(_log(9999, 999), None))

  def test_a_run_at_or_above_a_limit_fails(self):
    for scenario, ttft, tpot, message in (
      (
        rounds.INTERACTIVE,
        *(501, 29),
        r'first token \(TTFT\) is 501.000 ms, but must be less than 500 ms.*Lower',
      ),
      (
        rounds.INTERACTIVE,
        *(499, 31),
        r'output token \(TPOT\) is 31.000 ms, but must be less than 30 ms',
      ),
      (rounds.SERVER, 2001, 99, '2001.000 ms, but must be less than 2000 ms'),
      (rounds.SERVER, 1999, 101, '101.000 ms, but must be less than 100 ms'),
    ):
      (problem,) = self._over(scenario, ttft, tpot)
      self.assertRegex(problem, message)
    self.assertLen(self._over(rounds.INTERACTIVE, 501, 31), 2)
    self.assertLen(self._over(rounds.INTERACTIVE, 500, 30), 2)

  def test_a_log_without_tokens_does_not_pass(self):
    log = loadgen_log.RunLog('d', '', {'result_validity': 'VALID'}, ())
    with self.assertRaisesRegex(ValueError, 'no number result_first_token'):
      figures.over_limits(log, llama.LLAMA.token_limits.get(rounds.SERVER))
    self.assertEmpty(figures.token_latencies(log))


if __name__ == '__main__':
  absltest.main()
