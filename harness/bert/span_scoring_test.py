import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.bert import features
from harness.bert import span_scoring
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
    # The tokens are [CLS] who sat ? [SEP] the cat sat on the mat . [SEP].
    answers = [(0, self._logits(5, 6)), (1, self._logits(7, 8, 12))]
    self._write(answers, dtype, transposed)
    scored = span_scoring.score_log(
      self._log, self._features, span_scoring.Format(dtype, transposed)
    )
    # The answer to "Who sat?" is "The cat", which is correct. The second
    # feature is [CLS] where ? [SEP] the cat sat on the mat. Its answer "on the"
    # shares only the article with "the mat", and articles do not count.
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
    with self.assertRaisesRegex(
      ValueError, 'sample 2, but the set has 2 samples'
    ):
      span_scoring.score_log(self._log, self._features)

  def test_a_log_of_another_type(self):
    self._write([(0, self._logits(5, 6))], 'float64')
    with self.assertRaisesRegex(ValueError, '6144 bytes.*float32'):
      span_scoring.score_log(self._log, self._features)

  @parameterized.parameters(
    ('[\n]\n', 'accuracy mode'),
    ('{', 'not an accuracy log'),
    ('[{"qsl_idx": 0}]', 'not an accuracy log'),
    ('[{"qsl_idx": 0, "data": "xy"}]', 'not an accuracy log'),
  )
  def test_refuses(self, text, message):
    with open(self._log, 'w', encoding='utf-8') as file:
      file.write(text)
    with self.assertRaisesRegex(ValueError, message):
      span_scoring.score_log(self._log, self._features)


class SpansTest(parameterized.TestCase):
  def _features(self, *contexts: str) -> features.FeatureSet:
    vocab = tiny_set.write_vocab(self.create_tempdir().full_path)
    questions = [
      features.Question(f'q{n}', 'Who?', features.split_words(text), ())
      for n, text in enumerate(contexts)
    ]
    return features.convert(questions, features.tokenizer(vocab))

  def _logits(self, **values: float) -> np.ndarray:
    """Returns logits: zeros, but s4=2.0 sets a start and e5=1.0 an end."""
    made = np.zeros((384, 2))
    for name, value in values.items():
      made[int(name[1:]), 'se'.index(name[0])] = value
    return made

  def test_the_best_sum_in_the_letters_of_the_paragraph(self):
    # The tokens are [CLS] who ? [SEP] the cat sat on the mat . [SEP].
    made = self._features('The Cat sat on the (Mat).')
    logits = self._logits(s5=3, s4=2, e6=3, e4=4)
    self.assertEqual(span_scoring.answers(made, {0: logits}), {'q0': 'Cat sat'})

  def test_questions_and_specials_are_no_answers(self):
    made = self._features('The cat sat.')
    logits = self._logits(s1=9, e2=9, s0=9, e3=9, s5=1, e5=1, e7=2, s383=9)
    self.assertEqual(
      span_scoring.answers(made, {0: logits}), {'q0': 'cat sat.'}
    )

  def test_an_answer_has_at_most_thirty_tokens(self):
    made = self._features('cat ' * 60 + 'mat')
    logits = self._logits(s4=9, e33=1, e34=9)
    (answer,) = span_scoring.answers(made, {0: logits}).values()
    self.assertEqual(answer, ' '.join(['cat'] * 30))

  @parameterized.parameters((19, 'cat'), (20, 'empty'))
  def test_the_twenty_best_starts_are_combined(self, better, expected):
    """Gives `better` padding positions a higher logit than the answer."""
    made = self._features('The cat sat.')
    logits = self._logits(s5=5, e5=5)
    logits[300 : 300 + better, 0] = 9
    self.assertEqual(span_scoring.answers(made, {0: logits}), {'q0': expected})

  @parameterized.parameters((19, 'cat'), (20, 'empty'))
  def test_the_twenty_best_ends_are_combined(self, better, expected):
    made = self._features('The cat sat.')
    logits = self._logits(s5=5, e5=5)
    logits[300 : 300 + better, 1] = 9
    self.assertEqual(span_scoring.answers(made, {0: logits}), {'q0': expected})

  def test_the_better_window_wins_and_missing_ones_are_left_out(self):
    made = self._features('cat ' * 378 + 'on the mat ')
    self.assertLen(made, 2)
    second = {1: self._logits(s255=1, e256=1)}
    self.assertEqual(span_scoring.answers(made, second), {'q0': 'the mat'})
    both = second | {0: self._logits(s4=5, e5=5)}
    self.assertEqual(span_scoring.answers(made, both), {'q0': 'cat cat'})

  def test_without_logits_there_is_no_answer(self):
    self.assertEqual(
      span_scoring.answers(
        self._features('cat', 'mat'), {0: self._logits(s4=1)}
      ),
      {'q0': 'cat', 'q1': 'empty'},
    )

  @parameterized.parameters(
    ('steve smith', "Steve Smith's", 'Steve Smith'),
    ('1895', '(1895-1943).', '1895'),
    ('naive cafe', 'the naïve café,', 'naïve café'),
    # No text matches, so the result is the original words.
    ('dog', 'The cat', 'The cat'),
    # A character that the tokenizer removes prevents a match of letters.
    ('ab c', 'a\u200bb c', 'a\u200bb c'),
    # A decomposed accent also prevents it.
    ('te', 'te\u0301', 'te\u0301'),
  )
  def test_original_text(self, answer, original, expected):
    self.assertEqual(span_scoring.original_text(answer, original), expected)


if __name__ == '__main__':
  absltest.main()
