"""Tests answers by simple rules."""

import random

from absl.testing import absltest

from bundled.bert import questions
from bundled.bert.baselines import guesses

_TEXT = (
  'Few in Gribmouth will forget this week. On Sunday a blaze swept through a'
  ' school in Tarnham. Called out were 12 crews, which worked for 9 hours.'
  ' Hospitals took in 31 people. Editor Ada Bellman spoke of luck.'
)


def _question(text: str, topic: str) -> questions.Question:
  return questions.Question(text, '', 0, topic, True)


class GuessesTest(absltest.TestCase):
  def test_type_of_answer(self):
    rng = random.Random(0)
    for topic, expected in (
      ('fire/hours', {'12', '9 hours', '31 people'}),
      ('fire/day', {'Sunday'}),
      ('fire/town', {'Gribmouth', 'Tarnham', 'Editor Ada Bellman'}),
    ):
      question = _question('What was it?', topic)
      answers = {
        guesses.random_of_type(question, _TEXT, rng) for _ in range(50)
      }
      self.assertEqual(answers, expected)

  def test_first_and_nearest(self):
    rng = random.Random(0)
    question = _question('How many people were hurt?', 'fire/hurt')
    self.assertEqual(guesses.first_of_type(question, _TEXT, rng), '12')
    self.assertEqual(
      guesses.nearest_sentence(question, _TEXT, rng),
      'Hospitals took in 31 people.',
    )
    self.assertEqual(guesses.nearest_of_type(question, _TEXT, rng), '31 people')

  def test_names_in_the_question_are_left_out(self):
    rng = random.Random(0)
    question = _question('What was on fire in Gribmouth?', 'fire/town')
    self.assertEqual(guesses.first_of_type(question, _TEXT, rng), 'Tarnham')

  def test_phrases_are_in_the_text(self):
    rng = random.Random(0)
    question = _question('How did the fire start?', 'fire/cause')
    for _ in range(20):
      self.assertIn(guesses.random_of_type(question, _TEXT, rng), _TEXT)


if __name__ == '__main__':
  absltest.main()
