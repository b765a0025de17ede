import json
import re

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.evaluation import f1


class F1Test(parameterized.TestCase):
  @parameterized.parameters(
    ('The  Cat, a dog!', 'cat dog'),
    ("Steve Smith's", 'steve smiths'),
    ('An apple\tthen THE theory', 'apple then theory'),
    ('U.S.', 'us'),
    ('a', ''),
    # Non-ASCII punctuation stays, as in the official script.
    ('“word”', '“word”'),
    # Punctuation is removed first, which can join an article to a word.
    ('the-cat', 'thecat'),
  )
  def test_answers_are_normalized(self, text, expected):
    self.assertEqual(f1.normalize(text), expected)

  @parameterized.parameters(
    ('the cat', 'A cat.', 1.0),
    ('black cat', 'cat', 2 * 0.5 / 1.5),
    ('cat cat', 'cat dog', 0.5),
    ('dog', 'cat', 0.0),
    ('the', 'a', 0.0),
  )
  def test_overlap_counts_shared_words(self, answer, truth, expected):
    self.assertAlmostEqual(f1.overlap(answer, truth), expected)

  def test_best_truth_counts_and_missing_answer_scores_zero(self):
    truths = {'x': ('dog', 'black cat'), 'y': ('cat',), 'z': ('bird',)}
    scores = f1.score({'x': 'the black cat', 'y': 'black cat'}, truths)
    self.assertAlmostEqual(scores.exact_match, 100 / 3)
    self.assertAlmostEqual(scores.f1, 100 * (1 + 2 / 3) / 3)

  def test_last_of_max_examples_is_counted_but_not_scored(self):
    truths = {name: (name,) for name in ('one', 'two', 'three')}
    answers = {name: name for name in truths}
    self.assertEqual(f1.score(answers, truths, 2).f1, 50.0)
    self.assertAlmostEqual(f1.score(answers, truths, 3).f1, 200 / 3)
    self.assertEqual(f1.score(answers, truths, 4).f1, 100.0)

  def test_result_line_is_readable_by_the_checker(self):
    line = f1.Scores(83.5, 90.87487).line
    # submission_checker.py uses this pattern.
    match = re.match(r'^{[\"\']exact_match[\"\']:\s*([\d\.]+),.*', line)
    self.assertIsNotNone(match)
    self.assertEqual(json.loads(line), {'exact_match': 83.5, 'f1': 90.87487})

  def test_question_without_truth_is_reported(self):
    with self.assertRaisesRegex(
      ValueError, 'question q1 has no correct answer'
    ):
      f1.score({'q1': 'x'}, {'q1': ()})


if __name__ == '__main__':
  absltest.main()
