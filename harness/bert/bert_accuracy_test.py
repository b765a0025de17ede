import json
import os
import subprocess

from absl.testing import absltest
import numpy as np

from harness.bert.testing import tiny_set
from saxml_ext.common.testing import modules


class AccuracyTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _run(self, *flags: str) -> subprocess.CompletedProcess:
    return modules.run(
      'harness.bert.bert_accuracy',
      f'--vocab_file={tiny_set.write_vocab(self._dir)}',
      f'--val_data={tiny_set.write_questions(self._dir)}',
      *flags,
    )

  def test_scores_a_log(self):
    # The tokens are [CLS] who sat ? [SEP] the cat sat on the mat . [SEP].
    logits = np.zeros((13, 2), np.float16)
    logits[5, 0] = logits[6, 1] = 1
    log = os.path.join(self._dir, 'mlperf_log_accuracy.json')
    with open(log, 'w', encoding='utf-8') as file:
      entry = {'qsl_idx': 0, 'data': logits.T.tobytes().hex()}
      json.dump([entry], file)
    answers = os.path.join(self._dir, 'predictions.json')
    done = self._run(
      f'--log_file={log}',
      f'--out_file={answers}',
      '--output_dtype=float16',
      '--output_transposed',
    )
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertEqual(done.stdout, '{"exact_match": 50.0, "f1": 50.0}\n')
    with open(answers, encoding='utf-8') as file:
      self.assertEqual(json.load(file), {'q0': 'The cat', 'q1': 'empty'})

  def test_a_missing_log(self):
    done = self._run('--log_file=/nowhere/mlperf_log_accuracy.json')
    self.assertEqual(done.returncode, 1)
    self.assertStartsWith(done.stderr.strip().splitlines()[-1], 'accuracy: ')
    self.assertNotIn('Traceback', done.stderr)


if __name__ == '__main__':
  absltest.main()
