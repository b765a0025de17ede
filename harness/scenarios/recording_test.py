import dataclasses
import os

from absl.testing import absltest

from harness.benchmarks import llama
from harness.loadgen import loadgen_log
from harness.results import figures
from harness.results import scoring
from harness.rules import rounds
from harness.scenarios import recording
from saxml_ext.evaluation import rouge

_SCORES = rouge.Scores(50.0, 25.0, 40.0, 100, 2)
_DETECTED = {'number_of_nodes': '1', 'sw_notes': '', 'cooling': 'air'}
_NONE = {'params': 'P', 'overrides': {}}
_LOCAL = {'groups': [['vm', 'vm']]}
_TWO = {'groups': [['a', 'b'], ['c', 'd']]}


def _run(validity: str) -> loadgen_log.RunLog:
  return loadgen_log.RunLog('d', '', {'result_validity': validity}, ())


def _comparison(identical: int) -> scoring.Comparison:
  rule = scoring.Rule(0.01, identical=True)
  return scoring.Comparison(_SCORES, _SCORES, identical, rule)


class OutcomeTest(absltest.TestCase):
  def test_passes(self):
    self.assertEmpty(
      recording.Outcome(
        judgement=_comparison(2), performance=_run('VALID')
      ).problems()
    )
    self.assertEmpty(recording.Outcome().problems())

  def test_tells_of_both_runs(self):
    problems = recording.Outcome(
      judgement=_comparison(1), performance=_run('INVALID')
    ).problems()
    self.assertLen(problems, 2)
    self.assertIn('1 of 2 answers', problems[0])
    self.assertRegex(problems[1], 'as INVALID. .*--target_qps')

  def test_errors_of_loadgen_are_a_problem_beside_others(self):
    run = dataclasses.replace(
      _run('INVALID'), problems=('Ending early', 'other')
    )
    problems = recording.Outcome(
      judgement=_comparison(1), performance=run
    ).problems()
    self.assertLen(problems, 2)
    self.assertRegex(problems[1], 'logged 2 errors .* one is: Ending early')

  def test_a_valid_run_above_a_limit_on_tokens_fails(self):
    keys = (
      'first_token_{}_percentile_latency',
      'time_per_output_token_{}_percentile',
    )
    values = {
      'result_validity': 'VALID',
      'result_completed_tokens_per_second': 321.5,
      'result_first_token_mean_latency_ns': 2e6,
      'result_time_to_output_token_mean': 1e6,
      **{
        f'result_{key.format(percentile)}_ns': ms * 1e6
        for key, ms in zip(keys, (501, 29))
        for percentile in figures.PERCENTILES
      },
      **_timed_run('00:00:34.716').values,
    }
    limits = llama.LLAMA.token_limits.get(rounds.INTERACTIVE)
    outcome = recording.Outcome(
      performance=loadgen_log.RunLog('d', 'Result is : VALID', values, ()),
      limits=limits,
    )
    (problem,) = outcome.problems()
    self.assertRegex(problem, 'TTFT.* 501.000 ms, but must be less than 500 ms')
    report = outcome.report()
    self.assertRegex(
      report,
      r'first token \(TTFT\) +501.000 ms +2.000 ms +500 ms +FAILED\n'
      r'time per output token \(TPOT\) +29.000 ms +1.000 ms +30 ms +PASSED',
    )
    self.assertIn('321.50 tokens/s', report)
    relaxed = dataclasses.replace(outcome, limits=None)
    self.assertEmpty(relaxed.problems())
    self.assertRegex(relaxed.report(), 'TPOT.* none')

  def test_a_handful_of_queries_is_not_judged(self):
    self.assertEmpty(
      recording.Outcome(performance=_run('INVALID'), judged=False).problems()
    )


def _timed_run(end: str) -> loadgen_log.RunLog:
  values = {
    'power_begin': '11-21-2026 23:59:55.000',
    'power_end': f'11-22-2026 {end}',
  }
  return loadgen_log.RunLog('d', 'Result is : VALID\n', values, ())


def _report(performance: loadgen_log.RunLog, **results) -> str:
  return recording.Outcome(performance=performance, **results).report()


class ReportTest(absltest.TestCase):
  def test_a_short_run_is_marked_beside_valid(self):
    text = _report(_timed_run('00:00:06.250'))
    self.assertIn('Result is : VALID', text)
    self.assertIn('lasted 11.2 s, but the rules require at least 600 s', text)
    self.assertIn('--min_duration=600000', text)

  def test_a_run_of_official_length_is_marked(self):
    text = _report(_timed_run('00:09:55.500'))
    self.assertIn('lasted 600.5 s; the rules require at least 600 s.', text)
    self.assertNotIn('not an official result', text)

  def test_hosts_that_computed_together_are_reported(self):
    text = _report(_timed_run('00:09:55.500'), served={'groups': [['a', 'b']]})
    self.assertEndsWith(
      text, '600 s.\n\nThe model was computed by a group of 2 hosts (a, b).\n'
    )

  def test_the_file_has_both_runs(self):
    path = recording.write_report(
      self.create_tempdir().full_path,
      'Offline',
      _report(_timed_run('00:00:06.250'), judgement=_comparison(2)),
    )
    self.assertEqual(os.path.basename(path), 'report.md')
    with open(path, encoding='utf-8') as file:
      text = file.read()
    self.assertIn('# MLPerf Offline', text)
    self.assertIn('Result is : VALID', text)
    self.assertIn('This run lasted', text)
    self.assertIn('2 of 2 are: PASSED', text)


class NodesTest(absltest.TestCase):
  def test_without_groups_the_description_is_unchanged(self):
    for served in ({}, _NONE, {'groups': []}):
      self.assertEqual(recording.hosts_text(served), '')
      self.assertEqual(
        recording.describe_hosts(_DETECTED, (), served), _DETECTED
      )

  def test_processes_of_one_machine_are_one_node(self):
    notes = (
      'The model was computed by a group of 2 hosts on one machine (vm, vm).'
    )
    self.assertEqual(recording.hosts_text(_LOCAL), notes)
    self.assertEqual(
      recording.describe_hosts(_DETECTED, (), _LOCAL),
      _DETECTED | {'sw_notes': notes},
    )

  def test_machines_of_all_groups_are_counted(self):
    notes = (
      'The model was computed by a group of 2 hosts (a, b), and by a group of'
      ' 2 hosts (c, d).'
    )
    self.assertEqual(recording.hosts_text(_TWO), notes)
    description = recording.describe_hosts(
      _DETECTED | {'sw_notes': 'Tuned'}, (), _TWO
    )
    self.assertEqual(description['number_of_nodes'], '4')
    self.assertEqual(description['sw_notes'], f'Tuned. {notes}')

  def test_description_of_the_user_stays(self):
    own = _DETECTED | {'number_of_nodes': '9', 'sw_notes': 'Mine'}
    description = recording.describe_hosts(
      own, ('number_of_nodes', 'sw_notes'), _TWO
    )
    self.assertEqual(description, own)


if __name__ == '__main__':
  absltest.main()
