"""Tests the main job as a user runs it, also with several kinds of failures."""

import os
import signal

from absl.testing import absltest
import psutil

from tests.cell import job as job_lib

# The limit from the death of the model server to the end of the job.
_MOST_SECS_TO_FAIL = 30.0


class OfflineTest(absltest.TestCase):
  cache: str

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # A test runner may ignore Ctrl-C, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The tests share a cache, so that each program is compiled only once.
    cls.cache = os.path.join(absltest.TEST_TMPDIR.value, 'jax')

  def _job(self, **values: object) -> job_lib.Job:
    directory = self.create_tempdir().full_path
    job = job_lib.Job(directory, self.cache, values)
    self.addCleanup(job.process.wait)
    self.addCleanup(job.process.kill)
    return job

  def _assert_gone(self, processes: list[psutil.Process]) -> None:
    self.assertNotEmpty(processes)
    _, alive = psutil.wait_procs(processes, timeout=120)
    self.assertEmpty(alive)

  def test_valid_and_equal_to_the_reference(self):
    job = self._job(sample_count=12, min_duration=1)
    code = job.process.wait()
    output = job.output
    self.assertEqual(code, 0, output)
    self.assertIn('Result is : VALID', output)
    self.assertIn("identical to the reference's: 12 of 12", output)
    self.assertIn('within the tolerance', output)
    self.assertIn('token for token; 12 of 12 are: PASSED', output)
    self.assertRegex(output, r'This run lasted [\d.]+ s, but the rules require')
    self.assertRegex(
      job.read('accuracy', 'accuracy.txt'),
      r"'rouge1':\s[\d.]+, .*'gen_num': 12}",
    )
    summary = job.read('performance', 'run_1', 'mlperf_log_summary.txt')
    self.assertIn('Result is : VALID', summary)
    self.assertIn('No errors encountered during test.', summary)
    self.assertIn('min_duration = 1', job.read('user.conf'))
    report = job.read('report.md')
    self.assertIn('Result is : VALID', report)
    self.assertIn('This run lasted', report)

  def test_llama_is_equal_to_its_reference(self):
    job = self._job(model='llama3.1-8b', sample_count=12, min_duration=1)
    code = job.process.wait()
    self.assertEqual(code, 0, job.output)
    self.assertIn('Result is : VALID', job.output)
    self.assertIn('token for token; 12 of 12 are: PASSED', job.output)

  def test_killed_model_server_ends_the_job(self):
    job = self._job()
    job.wait_for('accuracy', 'mlperf_log_detail.txt')
    started = job.descendants()
    job.model_server().kill()
    code = job.process.wait(timeout=_MOST_SECS_TO_FAIL)
    self.assertEqual(code, 1)
    self.assertRegex(
      job.output, r'offline: the model server .* ended with signal SIGKILL'
    )
    self._assert_gone(started)

  def test_ctrl_c_stops_everything(self):
    job = self._job()
    job.wait_for('logs', 'model_server.log')
    started = job.descendants()
    job.process.send_signal(signal.SIGINT)
    job.process.send_signal(signal.SIGINT)  # As an impatient user does.
    self.assertEqual(job.process.wait(), 130)
    self.assertIn('interrupted', job.output)
    self._assert_gone(started)

  def test_killed_job_leaves_no_process(self):
    job = self._job()
    job.wait_for('logs', 'model_server.log')
    started = job.descendants()
    job.process.kill()
    self._assert_gone(started)

  def test_invalid_input_is_reported_before_any_start(self):
    job = self._job(dataset_path='/nowhere/eval.json')
    self.assertEqual(job.process.wait(), 1)
    self.assertIn('/nowhere/eval.json', job.output)
    self.assertFalse(os.path.exists(os.path.join(job.results, 'logs')))


if __name__ == '__main__':
  absltest.main()
