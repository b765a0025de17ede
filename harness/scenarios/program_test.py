import contextlib
import io
import os
from unittest import mock

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver

from harness import errors
from harness.data import bundle
from harness.loadgen import loadgen_log
from harness.results import comparison
from harness.scenarios import config as config_lib
from harness.scenarios import job as job_lib
from harness.scenarios import outcome
from harness.scenarios import program
from saxml_ext.evaluation import rouge

_SCORES = rouge.Scores(50.0, 25.0, 40.0, 100, 2)


def _outcome(identical: int, must: bool) -> outcome.Outcome:
  rule = comparison.Rule(0.01, must)
  return outcome.Outcome(
    comparison.Comparison(_SCORES, _SCORES, identical, rule),
    loadgen_log.RunLog(
      'd',
      'Result is : VALID\n',
      {
        'result_validity': 'VALID',
        'power_begin': '11-21-2026 22:00:00.000',
        'power_end': '11-21-2026 22:00:10.500',
      },
      (),
    ),
  )


class ProgramTest(absltest.TestCase):
  """The program around a job, which is stood in for by its outcome."""

  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self.enter_context(mock.patch.object(program.signal, 'signal'))

  def _run(self, result, **flags) -> tuple[int, str]:
    """Exit code and all that was printed."""

    class Job:
      def __init__(job, config: config_lib.JobConfig, progress):
        self.config = config

      def run(job):
        if isinstance(result, BaseException):
          raise result
        return result

    printed = io.StringIO()
    with (
      mock.patch.object(job_lib, 'Job', Job),
      flagsaver.flagsaver(results_dir=self._dir, **flags),
      contextlib.redirect_stdout(printed),
      contextlib.redirect_stderr(printed),
    ):
      code = program.run('offline', 'Offline', ['offline'])
    return code, printed.getvalue()

  def _report(self) -> str:
    with open(os.path.join(self._dir, 'report.md'), encoding='utf-8') as file:
      return file.read()

  def test_identical_answers_pass(self):
    code, text = self._run(_outcome(2, must=True))
    self.assertEqual(code, 0, text)
    for shown in (text, self._report()):
      self.assertIn('token for token; 2 of 2 are: PASSED', shown)
      self.assertIn('This run lasted 10.5 s', shown)

  def test_one_other_answer_of_a_float32_run_fails(self):
    code, text = self._run(_outcome(1, must=True))
    self.assertEqual(code, 1, text)
    self.assertIn('offline: 1 of 2 answers', text)
    for shown in (text, self._report()):
      self.assertIn('token for token; 1 of 2 are: FAILED', shown)

  def test_other_formats_need_rouge_alone(self):
    code, text = self._run(_outcome(1, must=False))
    self.assertEqual(code, 0, text)

  def test_bundled_model_is_compared_with_the_bundled_reference(self):
    self._run(_outcome(2, must=True))
    self.assertEqual(self.config.reference_path, bundle.reference_path())
    self.assertIsNone(self.config.require_identical)
    self.assertIsNone(self.config.target)
    self._run(_outcome(2, must=True), checkpoint='/ckpt')
    self.assertIsNone(self.config.reference_path)
    self.assertEqual(self.config.checkpoint, '/ckpt')

  def test_a_running_cell_is_a_target(self):
    self._run(
      _outcome(2, must=True), model_path='/sax/test/m', sax_root='/root'
    )
    self.assertEqual(self.config.target.model_id, '/sax/test/m')
    self.assertEqual(self.config.target.sax_root, '/root')
    self.assertIsNone(self.config.reference_path)

  def test_failures_are_told_in_a_line(self):
    code, text = self._run(errors.HarnessError('the cell is gone'))
    self.assertEqual((code, text), (1, 'offline: the cell is gone\n'))
    code, text = self._run(KeyboardInterrupt())
    self.assertEqual(code, 130)
    self.assertIn('everything that was started is stopped', text)

  def test_wrong_flags_are_told(self):
    code, text = self._run(_outcome(2, must=True), mode=['speed'])
    self.assertEqual(code, 1)
    self.assertIn('--mode=speed: choose accuracy', text)
    code, text = self._run(_outcome(2, must=True), override=['BATCH_SIZE'])
    self.assertIn('--override=BATCH_SIZE: write it as NAME=JSON', text)

  def test_takes_no_arguments(self):
    with self.assertRaisesRegex(app.UsageError, "'extra'"):
      program.run('offline', 'Offline', ['offline', 'extra'])


if __name__ == '__main__':
  absltest.main()
