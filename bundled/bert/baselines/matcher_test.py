"""Tests the matcher of templates."""

from absl.testing import absltest

from bundled.bert import evaluation
from bundled.bert.baselines import matcher


class MatcherTest(absltest.TestCase):
  def test_all_wordings_answer_nearly_all_questions(self):
    right = known = total = 0
    for index in range(40):
      passage, questions = evaluation.draw(index)
      for question in questions:
        total += 1
        answer = matcher.answer(question.text, passage.text, unseen=True)
        right += (answer or '').lower() == question.answer.lower()
        known += (
          matcher.answer(question.text, passage.text, unseen=False) is not None
        )
    self.assertGreater(right, 0.95 * total)
    self.assertBetween(known, 0.4 * total, 0.75 * total)

  def test_unknown_question(self):
    self.assertIsNone(matcher.answer('Why not?', 'It is so.', unseen=True))


if __name__ == '__main__':
  absltest.main()
