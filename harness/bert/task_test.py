import dataclasses
import json
import os
from unittest import mock

from absl.testing import absltest
import numpy as np

from harness.benchmarks import all as benchmarks
from harness.benchmarks import bert
from harness.bert import task as task_lib
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from saxml_ext.evaluation import f1

_COUNT = 20
_SAMPLES = run_lib.Samples(
  bert.BUNDLE.dataset, bert.BUNDLE.vocabulary, sample_count=_COUNT
)


class TaskTest(absltest.TestCase):
  def _task(self, reference: str | None = None):
    return task_lib.BertTask(_SAMPLES, 'bert-99', reference)

  def test_describes_the_bundled_questions(self):
    task = self._task(bert.BUNDLE.reference)
    self.assertIs(task.benchmark, bert.BERT)
    self.assertEqual(task.sample_count, _COUNT)
    self.assertEqual(task.samples, _SAMPLES)
    self.assertEqual(task.inputs['reference'], bert.BUNDLE.reference)
    self.assertEqual(task.parameters, {'max_examples': _COUNT, 'share': 0.99})

  def test_judges_a_log_beside_the_reference(self):
    directory = self.create_tempdir().full_path
    # The first token of all is the likeliest start and end of every answer.
    logits = np.zeros([384, 2], np.float32)
    entries = [
      {'seq_id': i, 'qsl_idx': i, 'data': logits.tobytes().hex()}
      for i in range(_COUNT)
    ]
    path = os.path.join(directory, loadgen_log.ACCURACY_LOG)
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(entries, file)
    judged = self._task(bert.BUNDLE.reference).judge(directory, exact=True)
    self.assertLess(judged.metrics['f1'], judged.reference_metrics['f1'])
    self.assertFalse(judged.passed)
    self.assertRegex(judged.problems()[0], 'F1 is .* must be at least')
    self.assertIn('FAILED', judged.verdict)
    with open(os.path.join(directory, 'accuracy.txt'), encoding='utf-8') as f:
      self.assertEqual(f.read().strip(), judged.line)
    alone = self._task().judge(directory, exact=True)
    self.assertTrue(alone.passed)
    self.assertIn('no reference to compare', alone.table)

  def test_the_published_target_decides_on_the_official_set(self):
    for ours, target, passed in (
      (89.96, 89.96526, False),
      (89.97, 89.96526, True),
      (90.78, 90.783126, False),
    ):
      scores = f1.Scores(80.0, ours)
      judged = task_lib.Judged(scores, None, 0, 9, 0.05, 0.99, target)
      self.assertEqual(judged.passed, passed, (ours, target))
      self.assertEqual('FAILED' in judged.verdict, not passed)
    directory = self.create_tempdir().full_path
    logits = np.zeros([384, 2], np.float32).tobytes().hex()
    entries = [
      {'seq_id': i, 'qsl_idx': i, 'data': logits} for i in range(_COUNT)
    ]
    path = os.path.join(directory, loadgen_log.ACCURACY_LOG)
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(entries, file)
    judged = self._task().judge(directory, exact=True)
    self.assertTrue(judged.passed)
    self.assertIn('not judged: the samples are not the', judged.verdict)
    # Only the number of features identifies the official set, which has 10,833.
    small = dataclasses.replace(bert.BERT, full_set=_COUNT)
    with mock.patch.dict(benchmarks.MODELS, {'bert-99': small}):
      judged = self._task().judge(directory, exact=True)
    [problem] = judged.problems()
    self.assertRegex(problem, 'must be at least 89.9653, the published target')

  def test_rules(self):
    reference = f1.Scores(80.0, 80.0)
    for ours, share, passed in (
      (79.96, None, True),
      (79.90, None, False),
      (79.30, 0.99, True),
      (79.19, 0.99, False),
      (79.90, 0.999, False),
    ):
      judged = task_lib.Judged(
        f1.Scores(80.0, ours), reference, 9, 9, 0.05, share
      )
      self.assertEqual(judged.passed, passed, (ours, share))

  def test_other_references_are_refused(self):
    for record, message in (
      ({'f1': 1.0}, 'is not a recorded reference'),
      (
        {'f1': 1.0, 'exact_match': 1.0, 'answers': {'x': 'y'}},
        'has no answer to question',
      ),
    ):
      path = self.create_tempfile(content=json.dumps(record)).full_path
      with self.assertRaisesRegex(ValueError, message):
        self._task(path)


if __name__ == '__main__':
  absltest.main()
