import contextlib
import io
import os
from unittest import mock

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver

from harness import errors
from harness.loadgen import loadgen_log
from harness.loadgen import rounds
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
    judgement=comparison.Comparison(_SCORES, _SCORES, identical, rule),
    performance=loadgen_log.RunLog(
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

  def _run(
    self, result, scenarios=(rounds.OFFLINE,), **flags
  ) -> tuple[int, str]:
    """Exit code and all that was printed."""

    class Job:
      def __init__(job, configs: list[config_lib.JobConfig], progress):
        self.configs = configs

      def run(job):
        for config in self.configs:
          if isinstance(result, BaseException):
            raise result
          yield config, result

    printed = io.StringIO()
    flags = {'results_dir': self._dir, 'cache_dir': self._dir} | flags
    with (
      mock.patch.object(job_lib, 'Job', Job),
      flagsaver.flagsaver(**flags),
      contextlib.redirect_stdout(printed),
      contextlib.redirect_stderr(printed),
    ):
      code = program.run('offline', scenarios, ['offline'])
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

  def test_each_scenario_has_a_report_of_its_own(self):
    code, text = self._run(
      _outcome(2, must=True), (rounds.OFFLINE, rounds.SERVER)
    )
    self.assertEqual(code, 0, text)
    for scenario in (rounds.OFFLINE, rounds.SERVER):
      path = os.path.join(self._dir, scenario, 'report.md')
      self.assertIn(path, text)
      with open(path, encoding='utf-8') as file:
        self.assertIn(f'# MLPerf {scenario}', file.read())

  def test_failures_are_told_in_a_line(self):
    code, text = self._run(errors.HarnessError('the cell is gone'))
    self.assertEqual((code, text), (1, 'offline: the cell is gone\n'))
    code, text = self._run(KeyboardInterrupt())
    self.assertEqual(code, 130)
    self.assertIn('everything that was started is stopped', text)

  def test_wrong_flags_are_told(self):
    code, text = self._run(_outcome(2, must=True), mode=['speed'])
    self.assertEqual(code, 1)
    self.assertIn('--mode=speed: choose one or more of accuracy', text)
    code, text = self._run(_outcome(2, must=True), override=['BATCH_SIZE'])
    self.assertIn('--override=BATCH_SIZE: write it as NAME=JSON', text)

  def test_takes_no_arguments(self):
    with self.assertRaisesRegex(app.UsageError, "'extra'"):
      program.run('offline', [rounds.OFFLINE], ['offline', 'extra'])


if __name__ == '__main__':
  absltest.main()
