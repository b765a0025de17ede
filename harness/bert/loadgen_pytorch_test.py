import os

from absl.testing import absltest

from harness.bert import span_scoring
from harness.bert.questions import features
from harness.bert.testing import tiny_run
from harness.rules import rounds


class LoadgenPytorchTest(absltest.TestCase):
  def test_accuracy(self):
    directory = self.create_tempdir().full_path
    done = tiny_run.run(
      'harness.bert.loadgen_pytorch',
      directory,
      rounds.OFFLINE,
      'accuracy',
      '--max_examples=4',
    )
    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    asked = features.load(
      os.path.join(directory, 'squad.json'),
      os.path.join(directory, 'vocab.txt'),
      4,
    )
    log = os.path.join(directory, 'logs', 'mlperf_log_accuracy.json')
    scored = span_scoring.score_log(log, asked)
    self.assertCountEqual(scored.logits, range(4))
    self.assertCountEqual(scored.answers, ['q0'])


if __name__ == '__main__':
  absltest.main()
