from absl import flags
from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import bert
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.rules import rounds
from harness.scenarios import load as load_lib


def _load(**changes) -> load_lib.Load:
  return load_lib.Load(
    **({'scenario': rounds.OFFLINE, 'round': 'v5.0'} | changes)
  )


def _settings(speed=None, benchmark=gptj.GPTJ, samples=512, **changes):
  return load_lib.run_settings(
    _load(**changes), benchmark, samples, speed or load_lib.Speed()
  )


class LoadTest(parameterized.TestCase):
  def test_demo_runs_once_over_the_set(self):
    settings = _settings()
    self.assertEqual(settings.min_duration_ms, 10_000)
    self.assertEqual(settings.min_query_count, 512)
    self.assertEqual(settings.buffer_count, 512)
    # LoadGen issues 1.1 times the target in ten seconds, which is less than two
    # passes.
    self.assertLess(settings.target_qps * 10 * 1.1, 512)
    self.assertIsNone(settings.target_latency_ms)

  def test_test_mode_sends_a_handful(self):
    settings = _settings(
      execution_mode=load_lib.TEST,
      scenario=rounds.SERVER,
      speed=load_lib.Speed(target_qps=3.0),
    )
    self.assertEqual(settings.min_duration_ms, 0)
    self.assertEqual(settings.min_query_count, 5)
    self.assertEqual(settings.max_query_count, 5)
    self.assertFalse(settings.issues_equally)
    self.assertEqual(settings.target_qps, 3.0)

  def test_fast_mode_ends_within_two_minutes(self):
    settings = _settings(execution_mode=load_lib.FAST)
    self.assertEqual(settings.min_duration_ms, 60_000)
    self.assertEqual(settings.max_duration_ms, 120_000)

  @parameterized.parameters(
    (rounds.SERVER, load_lib.Speed(target_qps=2.0), 120),
    (rounds.SERVER, load_lib.Speed(target_qps=0.001), 1),
    (rounds.SERVER, load_lib.Speed(target_qps=50.0), 512),
    (rounds.SINGLE_STREAM, load_lib.Speed(latency_ms=3000.0), 20),
    (rounds.MULTI_STREAM, load_lib.Speed(latency_ms=500.0), 120),
  )
  def test_fast_mode_asks_for_no_more_than_it_has_time_for(
    self, scenario, speed, count
  ):
    settings = _settings(
      execution_mode=load_lib.FAST, scenario=scenario, speed=speed
    )
    self.assertEqual(settings.min_query_count, count)
    # The run also does not require a whole pass over the buffer, which may
    # take longer.
    self.assertFalse(settings.issues_equally)

  @parameterized.parameters(
    ('v5.0', gptj.GPTJ, rounds.OFFLINE, 13368),
    ('v3.1', gptj.GPTJ, rounds.OFFLINE, 24576),
    ('v6.1', bert.BERT, rounds.OFFLINE, 10833),
    ('v5.0', gptj.GPTJ, rounds.SERVER, 512),
    ('v5.0', gptj.GPTJ, rounds.MULTI_STREAM, 662),
    ('v5.0', gptj.GPTJ, rounds.SINGLE_STREAM, 100),
  )
  def test_valid_mode_is_as_the_rules_ask(self, name, benchmark, scenario, n):
    settings = _settings(
      execution_mode=load_lib.VALID,
      scenario=scenario,
      round=name,
      benchmark=benchmark,
      speed=load_lib.Speed(1.0, 1.0),
    )
    self.assertEqual(settings.min_duration_ms, 600_000)
    self.assertEqual(settings.min_query_count, n)

  def test_value_of_the_user_wins(self):
    speed = load_lib.Speed(target_qps=3.0, latency_ms=4.0)
    self.assertEqual(_settings(speed, target_qps=7.0).target_qps, 7.0)
    self.assertEqual(_settings(speed).target_qps, 3.0)
    stream = {'scenario': rounds.SINGLE_STREAM}
    self.assertEqual(_settings(speed, **stream).target_latency_ms, 4.0)
    self.assertIsNone(_settings(speed, **stream).target_qps)
    self.assertEqual(
      _settings(speed, **stream, target_latency_ms=9.0).target_latency_ms, 9.0
    )
    # The latency of a Server run is a bound. No measurement changes it.
    server = {'scenario': rounds.SERVER}
    self.assertIsNone(_settings(speed, **server).target_latency_ms)
    self.assertEqual(
      _settings(
        speed, min_duration_ms=5, execution_mode=load_lib.VALID
      ).min_duration_ms,
      5,
    )

  @parameterized.parameters(
    (rounds.OFFLINE, {}, False),
    (rounds.SERVER, {}, True),
    (rounds.SERVER, {'target_qps': 1.0}, False),
    (rounds.SERVER, {'target_latency_ms': 1.0}, True),
    (rounds.MULTI_STREAM, {}, True),
    (rounds.SINGLE_STREAM, {'target_latency_ms': 1.0}, False),
  )
  def test_needs_target(self, scenario, given, expected):
    self.assertEqual(_load(scenario=scenario, **given).needs_target, expected)

  @parameterized.parameters(
    (gptj.GPTJ, rounds.SERVER, {}, 0.6),
    (gptj.GPTJ, rounds.SERVER, {'target_latency_ms': 900.0}, 0.35),
    (bert.BERT, rounds.SERVER, {}, 0.35),
    (llama.LLAMA, rounds.SERVER, {}, 0.6),
    (llama.LLAMA, rounds.INTERACTIVE, {}, 0.35),
  )
  def test_a_short_bound_needs_spare_capacity(
    self, benchmark, scenario, changes, expected
  ):
    load = _load(scenario=scenario, **changes)
    self.assertEqual(load_lib.server_share(load, benchmark), expected)

  def test_unknown_rounds_are_explained(self):
    parsed = flags.FLAGS['round'].parser.parse
    self.assertEqual(parsed('v3.1'), 'v3.1')
    with self.assertRaisesRegex(ValueError, 'GPT-J is in v3.1 to v5.0, and'):
      parsed('v3.0')

  def test_parameters_name_what_decides_a_result(self):
    known = _load().parameters
    self.assertEqual(_load(silence_secs=1.0).parameters, known)
    self.assertEqual(_load(min_duration_ms=10_000).parameters, known)
    self.assertNotEqual(_load(target_qps=2.0).parameters, known)


if __name__ == '__main__':
  absltest.main()
