"""Tests the main job with a group of two hosts, and failures that end it."""

import os
import signal

from absl.testing import absltest
from absl.testing import parameterized
import psutil

from tests.cell import job as job_lib

# The limit from the loss of a host to the end of the job, in seconds.
_MOST_SECS_TO_FAIL = 30.0
# Every host compiles all programs, so there are few: one for prompts, and two
# for decoding.
_OVERRIDES = ['BATCH_SIZE=4', 'BUCKET_KEYS=[512]']


class CellOfflineTest(parameterized.TestCase):
  cache: str

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # A test runner may ignore Ctrl-C, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cls.cache = os.path.join(absltest.TEST_TMPDIR.value, 'jax')

  def _job(self, **values: object) -> job_lib.Job:
    directory = self.create_tempdir().full_path
    job = job_lib.Job(
      directory, self.cache, {'hosts': 2, 'override': _OVERRIDES} | values
    )
    self.addCleanup(job.process.wait)
    self.addCleanup(job.process.kill)
    return job

  def _assert_gone(self, processes: list[psutil.Process]) -> None:
    self.assertNotEmpty(processes)
    _, alive = psutil.wait_procs(processes, timeout=120)
    self.assertEmpty(alive)

  @parameterized.named_parameters(
    ('gptj', 'gptj-99'),
    ('llama', 'llama3.1-8b'),
  )
  def test_valid_and_equal_to_the_reference(self, model):
    job = self._job(model=model, sample_count=12, min_duration=1)
    code = job.process.wait()
    output = job.output
    self.assertEqual(code, 0, output)
    self.assertIn('Result is : VALID', output)
    self.assertIn('token for token; 12 of 12 are: PASSED', output)
    self.assertRegex(output, 'computed by a group of 2 hosts on one machine')

  def test_a_lost_follower_ends_the_job(self):
    job = self._job()
    job.wait_for('accuracy', 'mlperf_log_detail.txt')
    started = job.descendants()
    job.model_server('--process_id=1').kill()
    code = job.process.wait(timeout=_MOST_SECS_TO_FAIL)
    self.assertEqual(code, 1)
    self.assertRegex(
      job.output,
      r'model server, process 1 .* ended with signal SIGKILL'
      r'|host \S+ \(process 1\) is lost',
    )
    self._assert_gone(started)

  def test_ctrl_c_stops_everything(self):
    job = self._job()
    job.wait_for('logs', 'model_server_1.log')
    started = job.descendants()
    job.process.send_signal(signal.SIGINT)
    self.assertEqual(job.process.wait(), 130)
    self._assert_gone(started)


if __name__ == '__main__':
  absltest.main()
