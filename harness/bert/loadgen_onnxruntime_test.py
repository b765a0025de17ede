import os

from absl.testing import absltest
from absl.testing import parameterized

from harness.bert import span_scoring
from harness.bert.questions import features
from harness.bert.testing import tiny_run
from harness.loadgen import timeline
from harness.rules import rounds

_MODULE = 'harness.bert.loadgen_onnxruntime'


class LoadgenOnnxruntimeTest(parameterized.TestCase):
  @parameterized.parameters(*rounds.SCENARIOS)
  def test_performance(self, scenario):
    directory = self.create_tempdir().full_path
    done = tiny_run.run(_MODULE, directory, scenario, 'performance')
    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    path = os.path.join(directory, 'logs', 'mlperf_log_summary.txt')
    with open(path, encoding='utf-8') as file:
      summary = file.read()
    self.assertIn(f'Scenario : {scenario}', summary)
    self.assertIn('No errors encountered during test.', summary)
    times = timeline.read(os.path.join(directory, 'timeline.csv'))
    self.assertGreaterEqual(len(times), 10)

  def test_accuracy_in_int8(self):
    directory = self.create_tempdir().full_path
    done = tiny_run.run(
      _MODULE, directory, rounds.OFFLINE, 'accuracy', '--precision=int8'
    )
    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    asked = features.load(
      os.path.join(directory, 'squad.json'),
      os.path.join(directory, 'vocab.txt'),
    )
    log = os.path.join(directory, 'logs', 'mlperf_log_accuracy.json')
    scored = span_scoring.score_log(log, asked)
    self.assertCountEqual(scored.logits, range(5))
    self.assertCountEqual(scored.answers, ['q0', 'q1'])

  def test_says_what_is_wrong(self):
    directory = self.create_tempdir().full_path
    done = tiny_run.run(
      _MODULE,
      directory,
      rounds.OFFLINE,
      'accuracy',
      '--val_data=/nowhere/dev-v1.1.json',
    )
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stdout, 'failure.*no questions at /nowhere.*curl')
    self.assertNotIn('Traceback', done.stderr)


if __name__ == '__main__':
  absltest.main()
