import dataclasses
import os

from absl.testing import absltest

from harness.benchmarks import bert
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.rules import rounds
from harness.scenarios import job as job_lib
from harness.scenarios import load as load_lib
from harness.scenarios import scenario_run
from harness.scenarios import session
from harness.systems import launch
from serve import progress


class _System:
  """A system with known answers, in LoadGen's process."""

  kind = 'canned'
  parameters: dict[str, object] = {}
  inputs: dict[str, str] = {}

  def __init__(self, shift: int):
    self._shift = shift

  def start(self, workspace: launch.Workspace) -> launch.Started:
    program = 'harness/submission/testing/canned_run'
    system = {'logits': True, 'shift': self._shift}
    return launch.Started(program, system, exact=False)


@dataclasses.dataclass(frozen=True)
class _Judgement:
  line: str

  def problems(self) -> list[str]:
    return []


class _Task:
  """A task of which only the number of samples is known."""

  benchmark = bert.BERT
  sample_count = 20
  samples = run_lib.Samples(sample_count=20)
  inputs: dict[str, str] = {}
  parameters: dict[str, object] = {}

  def judge(
    self, directory: str, exact: bool, other_search: str = ''
  ) -> _Judgement:
    answers = compliance.answers(
      os.path.join(directory, loadgen_log.ACCURACY_LOG)
    )
    judgement = _Judgement(f'{len(answers)} answers, first {answers[0][1][:8]}')
    with open(os.path.join(directory, 'accuracy.txt'), 'w') as file:
      file.write(judgement.line)
    return judgement


class ComplianceTest(absltest.TestCase):
  """Tests jobs that run compliance tests, including LoadGen."""

  def run_job(
    self, round_name: str, modes: tuple[str, ...], shift: int = 0, **load
  ):
    directory = self.create_tempdir().full_path
    config = job_lib.Job(
      model='bert-99',
      modes=modes,
      results_dir=directory,
      targets_path=None,
      system=_System(shift),
      task=_Task(),
      load=load_lib.Load(
        **{'scenario': rounds.OFFLINE} | load,
        round=round_name,
        min_duration_ms=1,
        target_qps=2e6,
        concurrency=100_000,
      ),
    )
    shown = progress.Progress()
    with session.started(config.system, directory, shown) as started:
      run = scenario_run.ScenarioRun(config, started, shown)
      return directory, run.run()

  def test_accuracy_performance_and_compliance(self):
    directory, outcome = self.run_job(
      'v4.1', ('accuracy', 'performance', 'compliance')
    )
    self.assertStartsWith(outcome.judgement.line, '20 answers')
    self.assertTrue(outcome.performance.valid)
    first, fifth = (
      loadgen_log.read(os.path.join(directory, 'compliance', test))
      for test in ('TEST01', 'TEST05')
    )
    self.assertTrue(first.valid and fifth.valid)
    self.assertEqual(
      first.values['effective_accuracy_log_sampling_target'], 4096
    )
    key = 'effective_qsl_rng_seed'
    self.assertEqual(first.values[key], rounds.ROUNDS['v4.1'].qsl_seed)
    self.assertEqual(
      fifth.values[key],
      compliance.attributes('TEST05', 'v4.1')['qsl_rng_seed'],
    )
    self.assertEqual(fifth.values['effective_accuracy_log_sampling_target'], 0)
    scores = os.path.join(
      directory, 'compliance', 'TEST01', 'baseline_accuracy.txt'
    )
    self.assertFalse(os.path.exists(scores))
    for name in ('accuracy', 'performance', 'TEST01', 'TEST05'):
      path = os.path.join(directory, 'timeline', f'{name}.csv')
      self.assertTrue(os.path.isfile(path), path)

  def test_answers_that_differ_are_scored(self):
    directory, _ = self.run_job('v6.1', ('accuracy', 'compliance'), shift=7)
    test = os.path.join(directory, 'compliance', 'TEST01')
    lines = {}
    for name in compliance.SCORES:
      with open(os.path.join(test, name)) as file:
        lines[name] = file.read()
    # The test logged samples, which are all 20 samples of the set.
    self.assertStartsWith(lines[compliance.BASELINE_SCORE], '20 answers, ')
    self.assertNotEqual(*(line.split()[-1] for line in lines.values()))

  def test_five_queries_do_not_end_a_compliance_test(self):
    directory, outcome = self.run_job(
      'v4.1',
      ('performance', 'compliance'),
      scenario=rounds.SERVER,
      execution_mode=load_lib.TEST,
    )
    self.assertEqual(outcome.performance.values['result_query_count'], 5)
    for test in ('TEST01', 'TEST05'):
      log = loadgen_log.read(os.path.join(directory, 'compliance', test))
      self.assertEqual(log.problems, ())
      least = log.values['effective_min_query_count']
      self.assertGreaterEqual(log.values['result_query_count'], least)

  def test_rounds_without_test05(self):
    directory, _ = self.run_job('v6.1', ('performance', 'compliance'))
    self.assertEqual(
      os.listdir(os.path.join(directory, 'compliance')), ['TEST01']
    )


if __name__ == '__main__':
  absltest.main()
