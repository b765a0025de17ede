import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.bert import span_scoring
from harness.bert.questions import features
from harness.bert.testing import tiny_set


class ScoringTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    vocab = tiny_set.write_vocab(self._dir)
    questions = tiny_set.write_questions(self._dir)
    self._features = features.load(questions, vocab)
    self._log = os.path.join(self._dir, 'mlperf_log_accuracy.json')

  def _write(self, answers, dtype='float32', transposed=False):
    entries = []
    for index, logits in answers:
      data = np.ascontiguousarray(logits.T if transposed else logits)
      text = data.astype(dtype).tobytes().hex().upper()
      entries.append({'seq_id': 0, 'qsl_idx': index, 'data': text})
    with open(self._log, 'w', encoding='utf-8') as file:
      json.dump(entries, file)

  def _logits(self, start: int, end: int, length: int = 384) -> np.ndarray:
    made = np.zeros((length, 2))
    made[start, 0] = made[end, 1] = 5
    return made

  @parameterized.product(
    dtype=('float32', 'float16', 'int8'), transposed=(False, True)
  )
  def test_scores_and_writes_the_line(self, dtype, transposed):
    # Tokens: [CLS] who sat ? [SEP] the cat sat on the mat . [SEP]
    answers = [(0, self._logits(5, 6)), (1, self._logits(7, 8, 12))]
    self._write(answers, dtype, transposed)
    scored = span_scoring.score_log(
      self._log, self._features, span_scoring.Format(dtype, transposed)
    )
    # Who sat? The cat: right. Where? [CLS] where ? [SEP] the cat sat on the
    # mat: "on the" has no word in common with "the mat" but the article.
    self.assertEqual(scored.answers, {'q0': 'The cat', 'q1': 'on the'})
    self.assertEqual(scored.scores.f1, 50.0)
    path = os.path.join(self._dir, span_scoring.ACCURACY_FILE)
    with open(path, encoding='utf-8') as file:
      self.assertEqual(file.read(), '{"exact_match": 50.0, "f1": 50.0}\n')

  def test_short_answers_are_padded_and_the_last_of_a_sample_counts(self):
    self._write([(0, self._logits(5, 5)), (0, self._logits(5, 6, 13))])
    logged = span_scoring.read_log(self._log, 2, span_scoring.Format())
    np.testing.assert_array_equal(logged[0][:13], self._logits(5, 6, 13))
    np.testing.assert_array_equal(logged[0][13:], -10000)

  def test_a_log_of_another_set(self):
    self._write([(2, self._logits(5, 6))])
    with self.assertRaisesRegex(ValueError, 'sample 2, the set has 2 samples'):
      span_scoring.score_log(self._log, self._features)

  def test_a_log_of_another_type(self):
    self._write([(0, self._logits(5, 6))], 'float64')
    with self.assertRaisesRegex(ValueError, '6144 bytes.*float32'):
      span_scoring.score_log(self._log, self._features)

  @parameterized.parameters(
    ('[\n]\n', 'accuracy mode'),
    ('{', 'no accuracy log'),
    ('[{"qsl_idx": 0}]', 'no accuracy log'),
    ('[{"qsl_idx": 0, "data": "xy"}]', 'no accuracy log'),
  )
  def test_refuses(self, text, message):
    with open(self._log, 'w', encoding='utf-8') as file:
      file.write(text)
    with self.assertRaisesRegex(ValueError, message):
      span_scoring.score_log(self._log, self._features)


if __name__ == '__main__':
  absltest.main()
