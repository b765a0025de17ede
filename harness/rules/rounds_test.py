from absl.testing import absltest
from absl.testing import parameterized

from harness.rules import rounds


class RoundsTest(parameterized.TestCase):
  """Pins the official values, because a wrong digit voids ten-minute runs."""

  # The seeds of the queries, the samples and the schedule. Source: mlperf.conf
  # (since v4.1 loadgen/mlperf.conf) at each tag of mlcommons/inference. For
  # v6.0 and v6.1: tools/submission/submission_checker/constants.py at b66003e.
  @parameterized.parameters(
    (
      'v3.1',
      148687905518835231,
      520418551913322573,
      811580660758947900,
    ),
    (
      'v4.0',
      13281865557512327830,
      198141574272810017,
      7575108116881280410,
    ),
    (
      'v4.1',
      3066443479025735752,
      10688027786191513374,
      14962580496156340209,
    ),
    (
      'v5.0',
      6023615788873153749,
      15036839855038426416,
      9933818062894767841,
    ),
    (
      'v5.1',
      1780908523862526354,
      14771362308971278857,
      18209322760996052031,
    ),
    (
      'v6.0',
      2465351861681999779,
      14276810075590677512,
      3936089224930324775,
    ),
    (
      'v6.1',
      2085463073848966840,
      2747215439041700203,
      16159082839903944936,
    ),
  )
  def test_seeds(self, name, queries, samples, schedule):
    rules = rounds.ROUNDS[name]
    self.assertEqual(rules.name, name)
    self.assertEqual(rules.qsl_seed, queries)
    self.assertEqual(rules.sample_seed, samples)
    self.assertEqual(rules.schedule_seed, schedule)
    conf = self.create_tempfile(content=f'*.*.qsl_rng_seed = {queries}\n')
    self.assertEqual(rounds.round_of(conf.full_path), name)

  def test_every_round_is_pinned(self):
    self.assertEqual(
      list(rounds.ROUNDS),
      ['v3.1', 'v4.0', 'v4.1', 'v5.0', 'v5.1', 'v6.0', 'v6.1'],
    )

  def test_limits(self):
    # Source: *.*.min_duration and the counts of mlperf.conf at v4.0.
    self.assertEqual(rounds.MIN_DURATION_MS, 600_000)
    self.assertEqual(rounds.MULTI_STREAM_SAMPLES, 8)
    self.assertEqual(rounds.MULTI_STREAM_MIN_QUERIES, 662)

  def test_scenarios(self):
    # The keys are from mlperf_log_detail.txt of LoadGen 6.0.17.
    for name, figure, official, target, rank in (
      (
        rounds.OFFLINE,
        'result_samples_per_second',
        'result_samples_per_second',
        'target_qps',
        '99th',
      ),
      (
        rounds.SERVER,
        'result_completed_samples_per_sec',
        'result_completed_samples_per_sec',
        'target_qps',
        '99th',
      ),
      (
        rounds.SINGLE_STREAM,
        'result_90.00_percentile_latency_ns',
        'early_stopping_latency_ss',
        'target_latency',
        '90th',
      ),
      (
        rounds.MULTI_STREAM,
        'result_99.00_percentile_per_query_latency_ns',
        'early_stopping_latency_ms',
        'target_latency',
        '99th',
      ),
    ):
      scenario = rounds.SCENARIOS[name]
      self.assertEqual(
        (
          scenario.figure_key,
          scenario.official_key,
          scenario.target,
          scenario.rank,
        ),
        (figure, official, target, rank),
      )
      if scenario.streams:
        self.assertEqual(scenario.latency_key(scenario.percentile), figure)
    several = rounds.SCENARIOS[rounds.MULTI_STREAM]
    self.assertEqual(
      several.extreme_key('mean'), 'result_mean_query_latency_ns'
    )
    self.assertEqual(several.what, 'queries')
    self.assertEqual(
      [name for name, scenario in rounds.SCENARIOS.items() if scenario.bounded],
      [rounds.SERVER, rounds.INTERACTIVE],
    )
    self.assertEqual(
      [name for name, scenario in rounds.SCENARIOS.items() if scenario.at_once],
      [rounds.OFFLINE],
    )

  def test_every_round_is_known_by_its_seed(self):
    for rules in rounds.ROUNDS.values():
      conf = f'# Seeds.\n*.*.qsl_rng_seed = {rules.qsl_seed}\n*.*.other = 1\n'
      path = self.create_tempfile(content=conf).full_path
      self.assertEqual(rounds.round_of(path), rules.name)

  def test_other_files_are_refused(self):
    for text, message in (
      ('gptj.Offline.target_qps = 1\n', 'has no line'),
      ('*.*.qsl_rng_seed = 12\n', 'seed 12, but none of these rounds has it'),
    ):
      path = self.create_tempfile(content=text).full_path
      with self.assertRaisesRegex(ValueError, message):
        rounds.round_of(path)


if __name__ == '__main__':
  absltest.main()
