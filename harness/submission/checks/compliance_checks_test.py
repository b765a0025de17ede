import pathlib
import re
import shutil

from absl.testing import absltest

from harness.benchmarks import bert
from harness.submission.checks import submission_checks
from harness.submission.testing import jobs

_BERT = jobs.Job(
  benchmark=bert.BERT,
  round='v4.1',
  target_qps=100,
  samples=50,
  # With answers this slow, both runs have nearly the same speed.
  answer_secs=0.2,
)
_SECS = 600.0


class ComplianceTest(absltest.TestCase):
  """Tests the compliance tests of a closed BERT submission, run by LoadGen."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.made = pathlib.Path(absltest.get_default_test_tmpdir(), 'closed')
    shutil.rmtree(cls.made, ignore_errors=True)
    jobs.make(cls.made, _BERT)
    for test in ('TEST01', 'TEST05'):
      jobs.make_compliance(cls.made, _BERT, test)
      jobs.last(cls.made / 'compliance' / test, _SECS)
    jobs.last(cls.made / 'performance' / 'run_1', _SECS)

  def setUp(self):
    super().setUp()
    self.job = pathlib.Path(self.create_tempdir().full_path, 'job')
    shutil.copytree(self.made, self.job)
    self.test = self.job / 'compliance' / 'TEST01'

  def problems(self) -> list[str]:
    """Returns the reported problems of the compliance tests."""
    submission = jobs.submission(jobs.load(self.job), division='closed')
    texts = submission_checks.problems(submission)
    return [problem for problem in texts if 'TEST0' in problem]

  def test_both_tests_pass(self):
    self.assertEqual(self.problems(), [])

  def test_missing_test_is_a_problem(self):
    shutil.rmtree(self.job / 'compliance' / 'TEST05')
    (problem,) = self.problems()
    self.assertRegex(problem, 'has no TEST05[.] .*,compliance')

  def test_wrong_seeds_are_a_problem(self):
    jobs.change(self.job / 'compliance' / 'TEST05', effective_qsl_rng_seed=3)
    (problem,) = self.problems()
    self.assertRegex(problem, 'TEST05: qsl_rng_seed was 3 instead of 167994585')

  def test_different_speed_is_a_problem(self):
    jobs.last(self.test, 1.2 * _SECS)
    (problem,) = self.problems()
    self.assertRegex(problem, 'TEST01 failed: .*Test score = .*, TEST FAIL')
    reference, test = map(float, re.findall(r'score = ([0-9.]+)', problem))
    self.assertAlmostEqual(reference / test, 1.2, delta=0.01)

  def test_other_answers_must_score_alike(self):
    shutil.rmtree(self.test)
    jobs.make_compliance(self.job, _BERT, 'TEST01', shift=5)
    jobs.last(self.test, _SECS)
    (problem,) = self.problems()
    self.assertIn('baseline_accuracy.txt and compliance_accuracy.txt', problem)
    line = '{{"exact_match": 83.0, "f1": {}}}\n'
    (self.test / 'baseline_accuracy.txt').write_text(line.format(90.0))
    (self.test / 'compliance_accuracy.txt').write_text(line.format(89.5))
    self.assertEqual(self.problems(), [])
    (self.test / 'compliance_accuracy.txt').write_text(line.format(88.0))
    (problem,) = self.problems()
    self.assertIn(
      'f1 is 88.0 for the answers of the test and 90.0 for those', problem
    )


if __name__ == '__main__':
  absltest.main()
