import os

from absl.testing import absltest
from absl.testing import parameterized
import mlperf_loadgen

from harness.loadgen import settings


class SettingsTest(parameterized.TestCase):
  def test_loadgen_reads_what_was_meant(self):
    conf = settings.RunSettings('Offline', 512, 10_000, 12.5).user_conf
    path = os.path.join(self.create_tempdir().full_path, 'user.conf')
    with open(path, 'w', encoding='utf-8') as file:
      file.write(conf)
    test = mlperf_loadgen.TestSettings()
    test.FromConfig(path, settings.MODEL, 'Offline')
    self.assertEqual(test.min_duration_ms, 10_000)
    self.assertEqual(test.min_query_count, 512)
    self.assertEqual(test.performance_sample_count_override, 512)
    self.assertEqual(test.offline_expected_qps, 12.5)
    # The benchmark's own rules stay: every article as often as any other.
    self.assertTrue(test.sample_concatenate_permutation)
    self.assertNotEqual(test.qsl_rng_seed, 0)

  @parameterized.parameters(
    (dict(sample_count=0), 'sample_count is 0'),
    (dict(min_duration_ms=0), 'min_duration is 0 ms'),
    (dict(target_qps=0.0), 'target_qps is 0'),
    (dict(target_qps=float('nan')), 'target_qps is nan'),
  )
  def test_refuses(self, change, message):
    values = dict(
      scenario='Offline', sample_count=1, min_duration_ms=1, target_qps=1.0
    )
    with self.assertRaisesRegex(ValueError, message):
      settings.RunSettings(**(values | change))

  def test_measured_rate_issues_more_than_min_duration(self):
    self.assertGreater(settings.target_qps_from_rate(8.0), 8.0)

  def test_one_pass_stays_one_pass(self):
    # LoadGen issues target_qps * min_duration * 1.1 samples.
    target = settings.target_qps_for_one_pass(512, 10_000)
    self.assertLess(target * 10 * 1.1, 512)


if __name__ == '__main__':
  absltest.main()
