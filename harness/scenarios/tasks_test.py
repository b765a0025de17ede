import json
import os
from unittest import mock

from absl.testing import absltest
import numpy as np

from harness.data import bundle
from harness.data import sentences
from harness.data.testing import punkt
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.rules import rounds
from harness.scenarios import tasks
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_OFFICIAL = 13368
_BEAMS = 'BEAM_SIZE=1 (reference: 4)'


class SummaryTaskTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._tokenizer = tokenizer_lib.load(bundle.tokenizer_path())

  def _articles(self, count: int) -> str:
    entry = {'instruction': 'a', 'input': 'b', 'output': 'the cat sat'}
    path = os.path.join(self._dir, f'{count}.json')
    with open(path, 'w', encoding='utf-8') as file:
      json.dump([entry] * count, file)
    return path

  def _task(self, dataset_path: str, count=0, **rule) -> tasks.SummaryTask:
    return tasks.SummaryTask(
      run_lib.Samples(dataset_path, bundle.tokenizer_path(), 9, count), **rule
    )

  def _log(self, count: int, answer: str, dtype: type = np.int64) -> None:
    data = np.array(self._tokenizer.encode(answer).ids, dtype)
    entries = [
      {'seq_id': i, 'qsl_idx': i, 'data': data.tobytes().hex()}
      for i in range(count)
    ]
    path = os.path.join(self._dir, loadgen_log.ACCURACY_LOG)
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(entries, file)

  def test_the_published_targets_decide_on_the_official_set(self):
    self.assertEqual(rounds.FULL_SET[rounds.GPTJ], _OFFICIAL)
    # Only the number of articles identifies the official set. Three articles
    # are scored faster.
    self.enter_context(mock.patch.dict(rounds.FULL_SET, {rounds.GPTJ: 3}))
    path = self._articles(3)
    for model in ('gptj-99', 'gptj-99.9'):
      task = self._task(path, model=model)
      self._log(3, 'a dog')
      judged = task.judge(self._dir, exact=False)
      self.assertFalse(judged.passed)
      least = {'gptj-99': '42.5566', 'gptj-99.9': '42.9435'}[model]
      self.assertIn(
        f'rouge1 is 0.0000; it must be at least {least}, the published target',
        '; '.join(judged.problems()),
      )
      self.assertIn('FAILED', judged.verdict)
    # Short answers with a perfect ROUGE fail the required length only.
    self._log(3, 'the cat sat')
    [problem] = task.judge(self._dir, exact=True).problems()
    self.assertStartsWith(problem, 'gen_len is ')

  def _llama(self, **more) -> tasks.SummaryTask:
    return tasks.SummaryTask(
      run_lib.Samples(
        self._articles(3), bundle.tokenizer_path(), 9, 0, rounds.LLAMA
      ),
      'llama3.1-8b',
      **more,
    )

  def test_rouge_lsum_and_the_largest_length_of_llama(self):
    self.enter_context(mock.patch.dict(rounds.FULL_SET, {rounds.LLAMA: 3}))
    self._log(3, 'a dog', np.int32)
    judged = self._llama(no_splitter='it needs a file').judge(self._dir, False)
    self.assertNotIn('rougeLsum is 0', '; '.join(judged.problems()))
    self.assertEndsWith(
      judged.verdict, '\nrougeLsum is not checked: it needs a file'
    )
    data = punkt.train(os.path.join(self._dir, 'nltk'), 20)
    task = self._llama(splitter=sentences.Splitter(data))
    self.assertEqual(
      task.inputs['punkt'],
      os.path.join(data, 'tokenizers', 'punkt_tab', 'english'),
    )
    judged = task.judge(self._dir, False)
    self.assertRegex(
      '; '.join(judged.problems()),
      'rougeLsum is 0.0000; it must be at least 35.4351, the published target',
    )
    self.assertNotIn('not checked', judged.verdict)
    self.assertIn(
      'gen_len 15 must be at most 8984408.4000: PASS', judged.verdict
    )

  def test_other_sets_are_not_judged_without_a_reference(self):
    self._log(3, 'a dog')
    judged = self._task(self._articles(3)).judge(self._dir, exact=False)
    self.assertTrue(judged.passed)
    self.assertIn(
      'not judged: the official set has 13368 samples, this run has 3',
      judged.verdict,
    )

  def _bundled(self, **rule) -> tasks.SummaryTask:
    return self._task(
      bundle.eval_path(), 2, reference_path=bundle.reference_path(), **rule
    )

  def test_another_search_is_not_held_to_the_recorded_answers(self):
    self._log(2, 'a dog')
    judged = self._bundled().judge(self._dir, False, _BEAMS)
    self.assertTrue(judged.passed, judged.problems())
    self.assertIn(
      f'not judged: the reference searches differently ({_BEAMS})',
      judged.verdict,
    )
    self.assertIsNotNone(judged.reference_metrics)
    # They are judged if the user sets a tolerance.
    judged = self._bundled(rouge_tolerance=0.5).judge(self._dir, False, _BEAMS)
    self.assertRegex(judged.problems()[0], 'the limit is 0.5 .--rouge_toler')

  def test_other_formats_need_a_share_of_the_reference(self):
    self._log(2, 'a dog')
    problems = (
      self._bundled(model='gptj-99.9').judge(self._dir, False).problems()
    )
    self.assertLen(problems, 3)
    self.assertIn("99.9 % of the reference's figures", problems[0])
    with open(bundle.reference_path(), encoding='utf-8') as file:
      recorded = json.load(file)['tokens']
    entries = [
      {
        'seq_id': i,
        'qsl_idx': i,
        'data': np.array(recorded[i], np.int64).tobytes().hex(),
      }
      for i in range(2)
    ]
    with open(
      os.path.join(self._dir, loadgen_log.ACCURACY_LOG), 'w', encoding='utf-8'
    ) as file:
      json.dump(entries, file)
    self.assertTrue(self._bundled().judge(self._dir, False).passed)
    exact = self._bundled().judge(self._dir, True)
    self.assertIn('token for token; 2 of 2 are: PASSED', exact.verdict)
    self.assertIn('within the tolerance of 0.01', exact.verdict)


if __name__ == '__main__':
  absltest.main()
