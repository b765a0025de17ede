import pathlib
import shutil

from absl.testing import absltest

from harness.results import job_result
from harness.submission.testing import jobs


class JobResultTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.made = pathlib.Path(absltest.get_default_test_tmpdir(), 'job_result')
    shutil.rmtree(cls.made, ignore_errors=True)
    jobs.make(cls.made, jobs.Job(target_qps=100))

  def setUp(self):
    super().setUp()
    self.job = pathlib.Path(self.create_tempdir().full_path, 'job')
    shutil.copytree(self.made, self.job)

  def test_result_has_the_values_of_the_job(self):
    result = job_result.load(str(self.job))
    self.assertEqual(result.entry.model, 'gptj-99')
    self.assertTrue(result.performance.valid)
    self.assertEqual(result.accuracy.problems, ())
    self.assertEqual(result.compliance, {})
    self.assertTrue(result.accuracy_text.is_file())
    self.assertTrue(result.user_conf.is_file())
    self.assertEqual(result.name, f'gptj-99 Offline ({self.job})')

  def test_missing_runs_are_none(self):
    shutil.rmtree(self.job / 'accuracy')
    shutil.copytree(
      self.job / 'performance' / 'run_1', self.job / 'compliance' / 'TEST01'
    )
    result = job_result.load(str(self.job))
    self.assertIsNone(result.accuracy)
    self.assertEqual(list(result.compliance), ['TEST01'])

  def test_unreadable_jobs_are_reported(self):
    log = self.job / 'performance' / 'run_1' / 'mlperf_log_detail.txt'
    log.write_text(log.read_text('utf-8')[:-9], 'utf-8')
    names = ['made', 'cut', 'nowhere', 'unknown']

    def find(name: str) -> str:
      if name == 'unknown':
        raise ValueError('the store has no such result')
      paths = {'made': self.made, 'cut': self.job}
      return str(paths.get(name, self.job / 'nowhere'))

    results, problems = job_result.load_all(names, find)
    self.assertEqual([result.directory for result in results], [self.made])
    self.assertLen(problems, 3)
    self.assertRegex(problems[0], '^cut: .* was cut off')
    self.assertRegex(problems[1], '^nowhere: .*result.json: No such file')
    self.assertEqual(problems[2], 'unknown: the store has no such result')


if __name__ == '__main__':
  absltest.main()
