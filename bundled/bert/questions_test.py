"""Tests the questions about generated articles."""

import re

from absl.testing import absltest

from bundled.bert import passages
from bundled.bert import questions
from bundled.bert import wordings
from bundled.news import events


def _questions(split: str, count: int) -> list[questions.Question]:
  return [
    one
    for index in range(count)
    for one in questions.ask(
      split, index, passages.write_passage(split, index), 4
    )
  ]


def _shapes(templates: list[str]) -> list[re.Pattern[str]]:
  """Returns regular expressions that match all questions of the templates."""
  shapes = []
  for template in templates:
    text = re.sub(r'\{\w+\}', '\0', template)
    parts = re.split(r'(\[[^\]]*\]|\0)', text)
    expression = ''
    for part in parts:
      if part == '\0':
        expression += '.+'
      elif part.startswith('['):
        options = map(re.escape, part[1:-1].split('|'))
        expression += f'(?:{"|".join(options)})'
      else:
        expression += re.escape(part)
    # An empty choice leaves only one of two spaces.
    shapes.append(re.compile(expression.replace(r'\ ', r'\s*')))
  return shapes


class QuestionsTest(absltest.TestCase):
  def test_answers_are_spans_of_the_passage(self):
    for index in range(300):
      passage = passages.write_passage('eval', index)
      drawn = questions.ask('eval', index, passage, 4)
      self.assertLen(drawn, 4)
      self.assertLen({one.topic for one in drawn}, 4)
      for one in drawn:
        end = one.start + len(one.answer)
        self.assertEqual(passage.text[one.start : end], one.answer)
        self.assertNotRegex(one.text, r'[{}\[\]|]|  | \?')
        self.assertEndsWith(one.text, '?')
        # An answer must not end inside a word or a number.
        self.assertRegex(passage.text[end : end + 1], r'[^\w]|^$')
        if one.start:
          self.assertRegex(passage.text[one.start - 1], r'[^\w]')

  def test_same_arguments_give_same_questions(self):
    passage = passages.write_passage('eval', 7)
    self.assertEqual(
      questions.ask('eval', 7, passage, 4), questions.ask('eval', 7, passage, 4)
    )

  def test_every_topic_has_questions(self):
    topics = {one.topic for one in _questions('any', 1500)}
    self.assertEqual(topics, set(questions.topics()))

  def test_every_number_and_idea_of_an_event_has_a_question(self):
    for kind, event in events.EVENTS.items():
      slots = {one.slot for one in wordings.WORDINGS[kind]}
      # These slots are part of the score of a match, or of an accident.
      slots |= {'against', 'mishap', 'office'}
      self.assertContainsSubset(event.numbers, slots, kind)
      self.assertContainsSubset(event.pairs, slots, kind)

  def test_unseen_wordings_are_in_the_evaluation_alone(self):
    drawn = _questions('train', 1000)
    self.assertTrue(all(one.seen for one in drawn))
    unseen = _shapes(
      [
        template
        for asked_of_kind in wordings.WORDINGS.values()
        for one in asked_of_kind
        for template in one.unseen
      ]
    )
    training = {one.text for one in drawn}
    for shape in unseen:
      fitting = [text for text in training if shape.fullmatch(text)]
      self.assertEmpty(fitting, shape.pattern)
    held_out = _questions('eval', 300)
    share = sum(not one.seen for one in held_out) / len(held_out)
    self.assertBetween(share, 0.2, 0.3)

  def test_wrong_position_is_an_error(self):
    passage = passages.write_passage('eval', 0)
    moved = {slot: 3 for slot in passage.events[0].starts}
    event = passages.Event(
      passage.events[0].kind, passage.events[0].slots, moved
    )
    with self.assertRaisesRegex(ValueError, 'but the passage has'):
      questions.answers(passages.Passage(passage.text, [event]))


if __name__ == '__main__':
  absltest.main()
