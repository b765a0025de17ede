import os

from absl.testing import absltest
from absl.testing import parameterized
import mlperf_loadgen

from harness.benchmarks import all as benchmarks
from harness.benchmarks import bert
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.loadgen import settings
from harness.rules import rounds


def _settings(**changes) -> settings.RunSettings:
  values = dict(
    benchmark=gptj.GPTJ,
    scenario=rounds.OFFLINE,
    round='v4.0',
    sample_count=512,
    buffer_count=512,
    min_duration_ms=10_000,
    min_query_count=512,
    target_qps=12.5,
  )
  return settings.RunSettings(**(values | changes))


class SettingsTest(parameterized.TestCase):
  def _user_conf(self, run: settings.RunSettings) -> str:
    path = os.path.join(self.create_tempdir().full_path, 'user.conf')
    with open(path, 'w', encoding='utf-8') as file:
      file.write(run.user_conf)
    return path

  def test_loadgen_reads_what_was_meant(self):
    # Only this test loads a benchmark's own defaults, because LoadGen applies
    # them only to the first settings of a process.
    run = _settings(buffer_count=100, max_duration_ms=60_000)
    test = settings.load(
      self._user_conf(run), run.benchmark, run.scenario, run.attributes
    )
    self.assertEqual(test.scenario, mlperf_loadgen.TestScenario.Offline)
    self.assertEqual(test.min_duration_ms, 10_000)
    self.assertEqual(test.max_duration_ms, 60_000)
    self.assertEqual(test.min_query_count, 512)
    self.assertEqual(test.performance_sample_count_override, 100)
    self.assertEqual(test.offline_expected_qps, 12.5)
    rules = rounds.ROUNDS['v4.0']
    self.assertEqual(test.qsl_rng_seed, rules.qsl_seed)
    self.assertEqual(test.sample_index_rng_seed, rules.sample_seed)
    self.assertEqual(test.schedule_rng_seed, rules.schedule_seed)
    self.assertFalse(test.sample_concatenate_permutation)

  @parameterized.parameters(
    (rounds.SERVER, 'server_target_latency_ns', 20_000_000_000),
    (rounds.SINGLE_STREAM, 'single_stream_expected_latency_ns', 20_000_000_000),
    (rounds.MULTI_STREAM, 'multi_stream_expected_latency_ns', 20_000_000_000),
  )
  def test_target_latency(self, scenario, field, expected):
    run = _settings(scenario=scenario, target_latency_ms=20_000.0)
    test = settings.load(
      self._user_conf(run), run.benchmark, scenario, run.attributes
    )
    self.assertEqual(getattr(test, field), expected)

  @parameterized.parameters(
    (llama.LLAMA, rounds.SERVER, 'llama3_1-8b', 2000, 100),
    (llama.LLAMA, rounds.INTERACTIVE, 'llama3_1-8b-interactive', 500, 30),
  )
  def test_limits_of_tokens(self, benchmark, scenario, model, ttft, tpot):
    for name in ('v5.1', 'v6.0', 'v6.1'):
      run = _settings(benchmark=benchmark, scenario=scenario, round=name)
      self.assertStartsWith(run.user_conf, f'{model}.Server.min_duration = ')
      test = settings.load(
        self._user_conf(run), benchmark, scenario, run.attributes
      )
      self.assertEqual(test.scenario, mlperf_loadgen.TestScenario.Server)
      self.assertTrue(test.use_token_latencies)
      self.assertEqual(test.ttft_latency, ttft * 1_000_000)
      self.assertEqual(test.tpot_latency, tpot * 1_000_000)
      self.assertEqual(test.server_target_latency_ns, 0)
      self.assertTrue(test.sample_concatenate_permutation)
      self.assertEqual(test.min_query_count, 512)
      self.assertEqual(test.server_target_qps, 12.5)

  def test_scenarios_with_first_tokens(self):
    values = [
      (benchmark, scenario)
      for benchmark in benchmarks.BENCHMARKS.values()
      for scenario in benchmark.scenarios
      if settings.reports_first_tokens(benchmark, scenario)
    ]
    self.assertEqual(
      values,
      [
        (llama.LLAMA, rounds.SERVER),
        (llama.LLAMA, rounds.INTERACTIVE),
        (llama.LLAMA_EDGE, rounds.SINGLE_STREAM),
      ],
    )
    run = _settings(benchmark=llama.LLAMA_EDGE, scenario=rounds.SINGLE_STREAM)
    self.assertEqual(run.attributes['use_token_latencies'], 1)
    self.assertNotIn('ttft_latency', run.attributes)
    self.assertNotIn('use_token_latencies', _settings().attributes)

  @parameterized.parameters(
    ('v3.1', gptj.GPTJ, rounds.SINGLE_STREAM, True),
    ('v3.1', gptj.GPTJ, rounds.SERVER, False),
    ('v4.0', gptj.GPTJ, rounds.SERVER, True),
    ('v4.0', gptj.GPTJ, rounds.OFFLINE, False),
    ('v4.1', gptj.GPTJ, rounds.OFFLINE, True),
    ('v5.0', gptj.GPTJ, rounds.MULTI_STREAM, True),
    ('v6.1', bert.BERT, rounds.SINGLE_STREAM, False),
  )
  def test_equal_issue(self, round_name, benchmark, scenario, expected):
    run = _settings(round=round_name, benchmark=benchmark, scenario=scenario)
    self.assertEqual(run.issues_equally, expected)
    self.assertEqual(
      run.attributes['sample_concatenate_permutation'], int(expected)
    )

  def test_the_whole_set_keeps_the_benchmarks_own_count(self):
    key = 'performance_sample_count_override'
    self.assertNotIn(key, _settings().user_conf)
    self.assertIn(f'{key} = 100\n', _settings(buffer_count=100).user_conf)

  def test_equal_issue_can_be_turned_off(self):
    self.assertFalse(_settings(round='v5.0', equal_issue=False).issues_equally)

  @parameterized.parameters(
    (dict(sample_count=0), 'sample_count is 0'),
    (dict(buffer_count=513), 'buffer_count is 513; it must be 1 to 512'),
    (dict(min_duration_ms=-1), 'min_duration is -1 ms'),
    (dict(target_qps=0.0), 'target_qps is 0'),
    (dict(target_qps=float('nan')), 'target_qps is nan'),
    (dict(target_latency_ms=0.0), 'target_latency_ms is 0'),
    (dict(round='v9'), "round 'v9' is unknown. Available: v3.1, v4.0"),
  )
  def test_refuses(self, change, message):
    with self.assertRaisesRegex(ValueError, message):
      _settings(**change)

  def test_measured_rate_issues_more_than_min_duration(self):
    self.assertGreater(settings.target_qps_from_rate(8.0), 8.0)

  def test_one_pass_stays_one_pass(self):
    # LoadGen issues target_qps * min_duration * 1.1 samples.
    target = settings.target_qps_for_one_pass(512, 10_000)
    self.assertLess(target * 10 * 1.1, 512)


if __name__ == '__main__':
  absltest.main()
