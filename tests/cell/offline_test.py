"""Runs the main job as a user does, and breaks it in several ways."""

import os
import signal
import subprocess
import time

from absl import flags
from absl.testing import absltest
import psutil

from harness.systems import programs
from saxml_ext.engine.testing import fast_compile

fast_compile.install()

_JOB_FLAGS = flags.DEFINE_multi_string(
  'job_flag', [], 'NAME=VALUE, passed on to the job; may be repeated.'
)

# From the death of the model server to the end of the job.
_MOST_SECS_TO_FAIL = 30.0
# Starting takes half a minute alone, and compiles all the while.
_START_SECS = 1200.0


class _Job:
  """A job in a process of its own, its output in a file."""

  def __init__(self, directory: str, cache: str, values: dict[str, object]):
    self.results = os.path.join(directory, 'results')
    self._output_path = os.path.join(directory, 'output.txt')
    extra = dict(text.split('=', 1) for text in _JOB_FLAGS.value)
    command = programs.command(
      'harness/offline',
      {'results_dir': self.results, 'jax_cache_dir': cache} | values | extra,
    )
    with open(self._output_path, 'wb') as output:
      self.process = subprocess.Popen(
        command.argv,
        env=dict(command.env),
        stdout=output,
        stderr=subprocess.STDOUT,
      )

  @property
  def output(self) -> str:
    with open(self._output_path, encoding='utf-8') as file:
      return file.read()

  def read(self, *path: str) -> str:
    """A file among the results."""
    with open(os.path.join(self.results, *path), encoding='utf-8') as file:
      return file.read()

  def wait_for(self, *path: str) -> None:
    """Waits until a file among the results has something in it."""
    path = os.path.join(self.results, *path)
    end = time.monotonic() + _START_SECS
    while not (os.path.exists(path) and os.path.getsize(path)):
      if self.process.poll() is not None or time.monotonic() > end:
        raise AssertionError(f'no {path}; the job says:\n{self.output}')
      time.sleep(0.1)

  def descendants(self) -> list[psutil.Process]:
    return psutil.Process(self.process.pid).children(recursive=True)

  def model_server(self) -> psutil.Process:
    for process in self.descendants():
      words = ' '.join(process.cmdline()).replace('.', '/')
      if programs.MODEL_SERVER in words:
        return process
    raise AssertionError('no model server among the processes of the job')


class OfflineTest(absltest.TestCase):
  cache: str

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # A test runner may ignore Ctrl-C, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Programs that one test compiles need not be compiled by the next.
    cls.cache = os.path.join(absltest.TEST_TMPDIR.value, 'jax')

  def _job(self, **values: object) -> _Job:
    directory = self.create_tempdir().full_path
    job = _Job(directory, self.cache, values)
    self.addCleanup(job.process.wait)
    self.addCleanup(job.process.kill)
    return job

  def _assert_gone(self, processes: list[psutil.Process]) -> None:
    self.assertNotEmpty(processes)
    _, alive = psutil.wait_procs(processes, timeout=120)
    self.assertEmpty(alive)

  def test_valid_and_equal_to_the_reference(self):
    job = self._job(sample_count=12, min_duration=500)
    code = job.process.wait()
    output = job.output
    self.assertEqual(code, 0, output)
    self.assertIn('Result is : VALID', output)
    self.assertIn("identical to the reference's: 12 of 12", output)
    self.assertIn('within the tolerance', output)
    self.assertIn('token for token; 12 of 12 are: PASSED', output)
    self.assertRegex(output, r'This run lasted [\d.]+ s, where the rules ask')
    self.assertRegex(
      job.read('accuracy', 'accuracy.txt'),
      r"'rouge1':\s[\d.]+, .*'gen_num': 12}",
    )
    summary = job.read('performance', 'run_1', 'mlperf_log_summary.txt')
    self.assertIn('Result is : VALID', summary)
    self.assertIn('No errors encountered during test.', summary)
    self.assertIn('min_duration = 500', job.read('user.conf'))
    report = job.read('report.md')
    self.assertIn('Result is : VALID', report)
    self.assertIn('This run lasted', report)

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
    self.assertEqual(job.process.wait(), 130)
    self.assertIn('interrupted', job.output)
    self._assert_gone(started)

  def test_nothing_outlives_a_killed_job(self):
    job = self._job()
    job.wait_for('logs', 'model_server.log')
    started = job.descendants()
    job.process.kill()
    self._assert_gone(started)

  def test_wrong_input_is_told_before_anything_starts(self):
    job = self._job(dataset_path='/nowhere/eval.json')
    self.assertEqual(job.process.wait(), 1)
    self.assertIn('/nowhere/eval.json', job.output)
    self.assertFalse(os.path.exists(os.path.join(job.results, 'logs')))


if __name__ == '__main__':
  absltest.main()
