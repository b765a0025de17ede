import dataclasses

from absl.testing import absltest

from harness.loadgen import loadgen_log
from harness.results import comparison
from harness.scenarios import outcome
from saxml_ext.evaluation import rouge

_SCORES = rouge.Scores(50.0, 25.0, 40.0, 100, 2)


def _run(validity: str) -> loadgen_log.RunLog:
  return loadgen_log.RunLog('d', '', {'result_validity': validity}, ())


def _comparison(identical: int) -> comparison.Comparison:
  rule = comparison.Rule(0.01, identical=True)
  return comparison.Comparison(_SCORES, _SCORES, identical, rule)


class OutcomeTest(absltest.TestCase):
  def test_passes(self):
    self.assertEmpty(
      outcome.Outcome(
        judgement=_comparison(2), performance=_run('VALID')
      ).problems()
    )
    self.assertEmpty(outcome.Outcome().problems())

  def test_tells_of_both_runs(self):
    problems = outcome.Outcome(
      judgement=_comparison(1), performance=_run('INVALID')
    ).problems()
    self.assertLen(problems, 2)
    self.assertIn('1 of 2 answers', problems[0])
    self.assertRegex(problems[1], 'INVALID: .*--target_qps')

  def test_errors_of_loadgen_are_a_problem_beside_others(self):
    run = dataclasses.replace(
      _run('INVALID'), problems=('Ending early', 'other')
    )
    problems = outcome.Outcome(
      judgement=_comparison(1), performance=run
    ).problems()
    self.assertLen(problems, 2)
    self.assertRegex(problems[1], 'logged 2 errors .* them: Ending early')

  def test_a_handful_of_queries_is_not_judged(self):
    self.assertEmpty(
      outcome.Outcome(performance=_run('INVALID'), judged=False).problems()
    )

  def test_probe_in_words(self):
    probe = outcome.Probe('3.00 samples/s', 'INVALID', '99th percentile 9.0 ms')
    self.assertEqual(
      str(probe),
      'asked for 3.00 samples/s: 99th percentile 9.0 ms, INVALID',
    )


if __name__ == '__main__':
  absltest.main()
