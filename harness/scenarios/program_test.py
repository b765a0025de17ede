from collections.abc import Callable
import contextlib
import dataclasses
import errno
import functools
import io
import os
import shutil
import signal
import sys
import tempfile
from unittest import mock

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver

from harness import errors
from harness.loadgen import loadgen_log
from harness.results import entry
from harness.results import scoring
from harness.results.testing import logs
from harness.rules import rounds
from harness.scenarios import job as job_lib
from harness.scenarios import program
from harness.scenarios import recording
from harness.scenarios import scenario_run
from saxml_ext.evaluation import rouge

_SCORES = rouge.Scores(50.0, 25.0, 40.0, 100, 2)


def _judgement(identical: int, must: bool) -> scoring.Comparison:
  rule = scoring.Rule(0.01, must)
  return scoring.Comparison(_SCORES, _SCORES, identical, rule)


@dataclasses.dataclass(frozen=True)
class _Terminates:
  """A job that receives a signal while it runs."""

  call: Callable[[], None]


@functools.cache
def _logs(scenario: str) -> str:
  """Returns the directory of a job with LoadGen's logs of a real run."""
  directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
  logs.make(directory, scenario)
  return directory


class ProgramTest(absltest.TestCase):
  """Tests the program with a stand-in for the job.

  The stand-in returns real logs of LoadGen and a given judgement.
  """

  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._jobs = 0
    self.enter_context(mock.patch.object(program.signal, 'signal'))

  def _performance(self, directory: str, scenario: str) -> loadgen_log.RunLog:
    """Returns the logs of a run, copied to the directory of the run."""
    made = _logs(scenario)
    shutil.copytree(made, directory, dirs_exist_ok=True)
    return loadgen_log.read(os.path.join(directory, 'performance', 'run_1'))

  def _run(
    self, result, scenarios=(rounds.OFFLINE,), served=None, **flags
  ) -> tuple[int, str]:
    """Returns the exit code and all printed text."""

    def run_jobs(configs: list[job_lib.Job], progress):
      self._jobs += 1
      for config in configs:
        if isinstance(result, BaseException):
          raise result
        if isinstance(result, _Terminates):
          result.call()
        performance = self._performance(
          config.results_dir, config.load.scenario
        )
        yield (
          config,
          recording.Outcome(
            judgement=result, performance=performance, served=served or {}
          ),
        )

    printed = io.StringIO()
    flags = {'cache_dir': self._dir, 'sample_count': 2} | flags
    with (
      mock.patch.object(scenario_run, 'run_jobs', run_jobs),
      flagsaver.flagsaver(**flags),
      contextlib.redirect_stdout(printed),
      contextlib.redirect_stderr(printed),
    ):
      code = program.run('offline', scenarios, ['offline'])
    return code, printed.getvalue()

  def _directory(self) -> str:
    return os.path.join(self._dir, 'here')

  def _report(self) -> str:
    path = os.path.join(self._directory(), 'report.md')
    with open(path, encoding='utf-8') as file:
      return file.read()

  def test_identical_answers_pass(self):
    code, text = self._run(_judgement(2, True), results_dir=self._directory())
    self.assertEqual(code, 0, text)
    for shown in (text, self._report()):
      self.assertIn('token for token; 2 of 2 are: PASSED', shown)
      self.assertIn('This run lasted', shown)
    kept = entry.read(self._directory())
    self.assertEqual(kept.accuracy.metrics['rouge1'], 50.0)
    self.assertEqual(kept.accuracy.identical, 2)
    self.assertTrue(kept.performance.valid)
    self.assertGreater(kept.performance.value, 0)
    self.assertLen(kept.hashes['dataset'], 64)
    self.assertIn('host_processor_model_name', kept.description)
    self.assertIn('jax', kept.versions)

  def test_hosts_of_a_group_are_reported(self):
    _, text = self._run(
      _judgement(2, True),
      served={'groups': [['a', 'b']]},
      results_dir=self._directory(),
    )
    line = 'The model was computed by a group of 2 hosts (a, b).'
    for shown in (text, self._report()):
      self.assertIn(line, shown)
    description = entry.read(self._directory()).description
    self.assertEqual(description['number_of_nodes'], '2')
    self.assertIn(line, description['sw_notes'])

  def test_one_other_answer_of_a_float32_run_fails(self):
    code, text = self._run(_judgement(1, True), results_dir=self._directory())
    self.assertEqual(code, 1, text)
    self.assertIn('offline: 1 of 2 answers', text)
    for shown in (text, self._report()):
      self.assertIn('token for token; 1 of 2 are: FAILED', shown)

  def test_other_formats_need_rouge_alone(self):
    code, text = self._run(_judgement(1, False))
    self.assertEqual(code, 0, text)

  def test_the_same_parameters_give_the_stored_result(self):
    for options in ({}, {'results_dir': self._directory()}):
      self._jobs = 0
      _, text = self._run(_judgement(1, True), **options)
      self.assertEqual(self._jobs, 1)
      code, again = self._run(_judgement(2, True), **options)
      self.assertEqual(self._jobs, 1)
      # The stored result fails again for the same reason.
      self.assertEqual(code, 1)
      self.assertIn('1 of 2 are: FAILED', again)
      self.assertIn('--rerun runs the job again', again)
      code, _ = self._run(_judgement(2, True), **options, rerun=True)
      self.assertEqual((code, self._jobs), (0, 2))
      code, _ = self._run(_judgement(1, True), **options)
      self.assertEqual((code, self._jobs), (0, 2))
      self._run(_judgement(2, True), **options, target_qps=3.0)
      self.assertEqual(self._jobs, 3)

  def test_a_failed_job_leaves_no_result(self):
    error = errors.HarnessError('the cell is gone')
    self._run(error)
    self._run(error)
    self.assertEqual(self._jobs, 2)

  def test_systems_that_the_program_does_not_contain_are_refused(self):
    # Only the launcher of the cell is among the data of this test.
    for system, model in (
      ('reference', 'gptj-99'),
      ('engine', 'llama3.1-8b'),
      ('pytorch', 'bert-99'),
    ):
      # The test sets --model, so it is not added.
      arguments = [f'--model={model}', f'--system={system}', '--override=A=b c']
      with mock.patch.object(sys, 'argv', ['offline', *arguments]):
        code, text = self._run(_judgement(2, True), system=system, model=model)
      self.assertEqual(code, 1)
      self.assertIn(f'--system={system} is not included in this program', text)
      self.assertIn(
        f'./bazelw run //harness:main -- --scenario=Offline --model={model}'
        f" --system={system} '--override=A=b c'",
        text,
      )
    self.assertEqual(self._jobs, 0)

  def test_flags_of_cm_have_hints(self):
    typed = (
      '--singlestream_target_latency=9',
      '--offline-target-qps=2',
      '--env.CM_X=1',
      '--adr.compiler.tags=gcc',
      '--tags=run-mlperf',
    )
    hints = program.hints(['offline', *typed, '--mode=accuracy', '--envx=1'])
    self.assertLen(hints, len(typed))
    self.assertIn('--target_latency_ms', hints['singlestream_target_latency'])
    self.assertIn('--target_qps here', hints['offline-target-qps'])
    for name in ('env.CM_X', 'adr.compiler.tags', 'tags'):
      self.assertIn('docs/commands.md', hints[name])

  def test_each_scenario_has_a_report_of_its_own(self):
    code, text = self._run(
      _judgement(2, True),
      (rounds.OFFLINE, rounds.SERVER),
      results_dir=self._directory(),
    )
    self.assertEqual(code, 0, text)
    for scenario in (rounds.OFFLINE, rounds.SERVER):
      path = os.path.join(self._directory(), scenario, 'report.md')
      self.assertIn(path, text)
      with open(path, encoding='utf-8') as file:
        self.assertIn(f'# MLPerf {scenario}', file.read())

  def test_failures_are_reported_in_a_line(self):
    code, text = self._run(errors.HarnessError('the cell is gone'))
    self.assertEqual((code, text), (1, 'offline: the cell is gone\n'))

  def test_a_signal_ends_with_a_line(self):
    self.enter_context(mock.patch.object(program.signal, 'signal', self._keep))
    # Whoever runs this test may ignore signals.
    self.enter_context(
      mock.patch.object(
        program.signal, 'getsignal', return_value=signal.SIG_DFL
      )
    )
    for number, cause in ((2, 'interrupted'), (15, 'ended by SIGTERM')):
      code, text = self._run(
        _Terminates(lambda: self._handlers[number](number, None))
      )
      self.assertEqual(code, 128 + number)
      self.assertEqual(
        text, f'offline: {cause}. All started processes are stopped\n'
      )
      # Nothing interrupts the unwinding.
      self.assertEqual(set(self._handlers.values()), {signal.SIG_IGN})

  def _keep(self, number, handler) -> None:
    self._handlers = getattr(self, '_handlers', {}) | {int(number): handler}

  def test_an_absent_file_is_reported_in_words(self):
    code, text = self._run(_judgement(2, True), dataset_path='/nowhere.json')
    self.assertEqual(code, 1)
    self.assertStartsWith(
      text, 'offline: /nowhere.json cannot be used: No such'
    )
    self.assertNotIn('Errno', text)

  def test_a_full_disk_is_reported_in_words(self):
    full = errno.ENOSPC, os.strerror(errno.ENOSPC)
    for error, disk in (
      (OSError(*full), 'a disk is full. '),
      (OSError(*full, '/results/a.log'), 'the disk of /results/a.log is full'),
    ):
      code, text = self._run(error)
      self.assertEqual(code, 1)
      self.assertStartsWith(text, f'offline: {disk}')
      self.assertIn('choose another disk with --results_dir', text)
      self.assertNotIn('Errno', text)

  def test_wrong_flags_are_reported(self):
    code, text = self._run(_judgement(2, True), mode=['speed'])
    self.assertEqual(code, 1)
    self.assertIn('--mode=speed must be one or more of accuracy', text)

  def test_takes_no_arguments(self):
    with self.assertRaisesRegex(app.UsageError, "'extra'"):
      program.run('offline', [rounds.OFFLINE], ['offline', 'extra'])


if __name__ == '__main__':
  absltest.main()
