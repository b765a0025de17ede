import os

from absl.testing import absltest

from harness.loadgen import loadgen_log
from harness.results import comparison as comparison_lib
from harness.results import result_text
from saxml_ext.evaluation import rouge


def _run(end: str) -> loadgen_log.RunLog:
  values = {
    'power_begin': '11-21-2026 23:59:55.000',
    'power_end': f'11-22-2026 {end}',
  }
  return loadgen_log.RunLog('d', 'Result is : VALID\n', values, ())


class ReportTest(absltest.TestCase):
  def test_a_short_run_says_so_beside_valid(self):
    text = result_text.render(None, _run('00:00:06.250'))
    self.assertIn('Result is : VALID', text)
    self.assertIn('lasted 11.2 s, where the rules ask for at least 600 s', text)
    self.assertIn('--min_duration=600000', text)

  def test_a_run_of_official_length_says_so(self):
    text = result_text.render(None, _run('00:09:55.500'))
    self.assertIn('lasted 600.5 s; the rules ask for at least 600 s.', text)
    self.assertNotIn('no official result', text)

  def test_hosts_that_computed_together_are_told(self):
    text = result_text.render(None, _run('00:09:55.500'), hosts='By a and b.')
    self.assertEndsWith(text, '600 s.\n\nBy a and b.\n')

  def test_the_file_has_both_runs(self):
    scores = rouge.Scores(50.0, 25.0, 40.0, 100, 2)
    comparison = comparison_lib.Comparison(
      scores, scores, 2, comparison_lib.Rule(0.01, identical=True)
    )
    path = result_text.write(
      self.create_tempdir().full_path,
      'Offline',
      result_text.render(comparison, _run('00:00:06.250')),
    )
    self.assertEqual(os.path.basename(path), 'report.md')
    with open(path, encoding='utf-8') as file:
      text = file.read()
    self.assertIn('# MLPerf Offline', text)
    self.assertIn('Result is : VALID', text)
    self.assertIn('This run lasted', text)
    self.assertIn('2 of 2 are: PASSED', text)


if __name__ == '__main__':
  absltest.main()
