from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.bert.questions import features
from harness.bert.questions import spans
from harness.bert.questions import squad
from harness.bert.testing import tiny_set


class SpansTest(parameterized.TestCase):
  def _features(self, *contexts: str) -> features.FeatureSet:
    vocab = tiny_set.write_vocab(self.create_tempdir().full_path)
    questions = [
      squad.Question(f'q{n}', 'Who?', squad.split_words(text), ())
      for n, text in enumerate(contexts)
    ]
    return features.convert(questions, features.tokenizer(vocab))

  def _logits(self, **values: float) -> np.ndarray:
    """Zeros, with s4=2.0 for a start at token 4 and e5=1.0 for an end."""
    made = np.zeros((384, 2))
    for name, value in values.items():
      made[int(name[1:]), 'se'.index(name[0])] = value
    return made

  def test_the_best_sum_in_the_letters_of_the_paragraph(self):
    # Tokens: [CLS] who ? [SEP] the cat sat on the mat . [SEP]
    made = self._features('The Cat sat on the (Mat).')
    logits = self._logits(s5=3, s4=2, e6=3, e4=4)
    self.assertEqual(spans.answers(made, {0: logits}), {'q0': 'Cat sat'})

  def test_questions_and_specials_are_no_answers(self):
    made = self._features('The cat sat.')
    logits = self._logits(s1=9, e2=9, s0=9, e3=9, s5=1, e5=1, e7=2, s383=9)
    self.assertEqual(spans.answers(made, {0: logits}), {'q0': 'cat sat.'})

  def test_an_answer_has_at_most_thirty_tokens(self):
    made = self._features('cat ' * 60 + 'mat')
    logits = self._logits(s4=9, e33=1, e34=9)
    (answer,) = spans.answers(made, {0: logits}).values()
    self.assertEqual(answer, ' '.join(['cat'] * 30))

  @parameterized.parameters((19, 'cat'), (20, 'empty'))
  def test_the_twenty_best_starts_are_combined(self, better, expected):
    """As many as that of the padding are better than the only possible one."""
    made = self._features('The cat sat.')
    logits = self._logits(s5=5, e5=5)
    logits[300 : 300 + better, 0] = 9
    self.assertEqual(spans.answers(made, {0: logits}), {'q0': expected})

  @parameterized.parameters((19, 'cat'), (20, 'empty'))
  def test_the_twenty_best_ends_are_combined(self, better, expected):
    made = self._features('The cat sat.')
    logits = self._logits(s5=5, e5=5)
    logits[300 : 300 + better, 1] = 9
    self.assertEqual(spans.answers(made, {0: logits}), {'q0': expected})

  def test_the_better_window_wins_and_missing_ones_are_left_out(self):
    made = self._features('cat ' * 378 + 'on the mat ')
    self.assertLen(made, 2)
    second = {1: self._logits(s255=1, e256=1)}
    self.assertEqual(spans.answers(made, second), {'q0': 'the mat'})
    both = second | {0: self._logits(s4=5, e5=5)}
    self.assertEqual(spans.answers(made, both), {'q0': 'cat cat'})

  def test_without_logits_there_is_no_answer(self):
    self.assertEqual(
      spans.answers(self._features('cat', 'mat'), {0: self._logits(s4=1)}),
      {'q0': 'cat', 'q1': 'empty'},
    )

  @parameterized.parameters(
    ('steve smith', "Steve Smith's", 'Steve Smith'),
    ('1895', '(1895-1943).', '1895'),
    ('naive cafe', 'the naïve café,', 'naïve café'),
    # Nothing matches: the words as they are.
    ('dog', 'The cat', 'The cat'),
    # A letter that vanishes spoils the match of letters.
    ('ab c', 'a\u200bb c', 'a\u200bb c'),
    # A decomposed accent, too.
    ('te', 'te\u0301', 'te\u0301'),
  )
  def test_original_text(self, answer, original, expected):
    self.assertEqual(spans.original_text(answer, original), expected)


if __name__ == '__main__':
  absltest.main()
