"""Tests of the lines that users add to user.conf."""

from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.loadgen import user_conf


class UserConfTest(parameterized.TestCase):
  def _read(self, text, benchmark=gptj.GPTJ, scenario='Offline') -> str:
    self.path = self.create_tempfile(content=text).full_path
    return user_conf.read(self.path, benchmark, scenario)

  def test_lines_of_the_run_get_full_names(self):
    text = (
      '# A comment\n\n'
      '*.*.min_duration = 5\n'
      '  gptj.Offline.target_qps   =  2.5\n'
      '#*.Offline.max_duration = x\n'
      'gptj.Server.target_qps = 7\n'
      'bert.Offline.max_duration = 9\n'
      '*.Offline.performance_sample_count_override = 3\n'
    )
    self.assertEqual(
      self._read(text),
      'gptj.Offline.min_duration = 5\n'
      'gptj.Offline.target_qps = 2.5\n'
      'gptj.Offline.performance_sample_count_override = 3\n',
    )
    self.assertEqual(
      self._read(text, scenario='Server'),
      'gptj.Server.min_duration = 5\ngptj.Server.target_qps = 7\n',
    )
    self.assertEqual(
      self._read('*.Server.max_duration = 9', llama.LLAMA, 'Interactive'),
      'llama3_1-8b-interactive.Server.max_duration = 9\n',
    )

  def test_latency_of_server_may_have_zero_decimals(self):
    line = 'gptj.Server.target_latency = 20000.0000\n'
    self.assertEqual(self._read(line, scenario='Server'), line)

  @parameterized.parameters(
    ('gptj.Offline.target_qps = abc', 'must be a number from 1e-06'),
    ('gptj.Offline.target_qps = 0', 'number from'),
    ('gptj.Offline.target_qps = -3', 'number from'),
    ('gptj.Offline.target_qps = nan', 'number from'),
    ('gptj.Offline.target_qps = inf', 'number from'),
    ('gptj.Offline.target_qps = 3 4', 'MODEL.SCENARIO.KEY = NUMBER'),
    ('gptj.Offline.target_qps = 3 # fast', 'comments on lines of their own'),
    ('gptj.Offline.target_qps=3', 'blanks around the equals sign'),
    ('gptj.Offline.target_qps', 'MODEL.SCENARIO.KEY = NUMBER'),
    ('Offline.target_qps = 3', 'MODEL.SCENARIO.KEY = NUMBER'),
    ('gptj.Offline.target_qsp = 3', "'target_qsp' .* Use target_qps"),
    ('gptj.Ofline.target_qps = 3', "'Ofline' .* Use Offline"),
    ('gptjj.Offline.target_qps = 3', "'gptjj' .* Use gptj"),
    ('gptj.SingleStream.target_qps = 3', 'Only Offline and Server'),
    ('*.*.target_latency = 3', 'Only SingleStream and MultiStream and Server'),
    ('*.*.mode = 2', "'mode' has no effect"),
    ('*.*.qsl_rng_seed = 2', "'qsl_rng_seed' has no effect"),
    ('*.*.min_duration = 1.5', 'whole number from 0'),
    ('*.*.min_duration = 1e3', 'whole number from 0'),
    ('*.*.min_duration = 010', 'whole number from 0'),
    ('*.*.min_duration = 0x10', 'whole number from 0'),
    ('*.*.print_timestamps = 2', 'whole number from 0 to 1'),
    ('gptj.Server.target_latency = 1.5', 'whole number'),
    ('gptj.Server.target_latency_percentile = 101', 'to 100'),
    ('*.*.min_duration = 1\ngptj.Offline.min_duration = 2', 'Line 1 sets it'),
  )
  def test_lines_without_effect_are_refused(self, text, message):
    with self.assertRaisesRegex(ValueError, message) as caught:
      self._read(text)
    last = text.splitlines()[-1]
    line = len(text.splitlines())
    self.assertStartsWith(
      str(caught.exception), f"{self.path}, line {line}: '{last}'. "
    )


if __name__ == '__main__':
  absltest.main()
