"""Tests the articles that questions are about."""

import re

from absl.testing import absltest

from bundled.bert import passages
from bundled.news import events
from bundled.news import lexicon
from bundled.news import names

_UNSEEN = (
  *lexicon.OPENERS.unseen,
  *lexicon.ASIDES.unseen,
  *lexicon.TURNS.unseen,
  *(text for event in events.EVENTS.values() for text in event.unseen),
)


def _texts(split: str, count: int) -> str:
  return ' '.join(
    passages.write_passage(split, index).text for index in range(count)
  )


class PassagesTest(absltest.TestCase):
  def test_same_number_gives_same_passage(self):
    for index in range(20):
      self.assertEqual(
        passages.write_passage('train', index),
        passages.write_passage('train', index),
      )
    self.assertNotEqual(
      passages.write_passage('train', 0), passages.write_passage('eval', 0)
    )

  def test_values_are_at_their_recorded_positions(self):
    for index in range(200):
      passage = passages.write_passage('eval', index)
      self.assertNotRegex(passage.text, r'[{}\[\]|]')
      for one in passage.events:
        for slot, start in one.starts.items():
          value = passage.text[start : start + len(one.slots[slot])]
          self.assertEqual(value.lower(), one.slots[slot].lower(), slot)

  def test_every_fact_is_in_the_text(self):
    for index in range(50):
      for one in passages.write_passage('train', index).events:
        event = events.EVENTS[one.kind]
        self.assertContainsSubset(event.numbers, one.starts)
        self.assertContainsSubset(event.pairs, one.starts)

  def test_unseen_wordings_are_in_the_evaluation_alone(self):
    begun = [re.split(r'[{\[]', text)[0] for text in _UNSEEN]
    begun = [text for text in begun if len(text) > 8]
    self.assertGreater(len(begun), 40)
    training = _texts('train', 2500)
    self.assertEmpty([text for text in begun if text in training])
    held_out = _texts('eval', 300)
    unseen = [text for text in begun if text in held_out]
    self.assertGreater(len(unseen), 0.9 * len(begun))

  def test_names_of_the_evaluation_are_not_in_training(self):
    for split, held_out in (('train', False), ('eval', True)):
      for index in range(100):
        passage = passages.write_passage(split, index)
        for one in passage.events:
          for slot in ('name', 'rival', 'town', 'judge'):
            for word in one.slots[slot].split():
              self.assertEqual(names.is_held_out(word), held_out, word)
          self.assertEqual(
            names.is_held_out(one.slots['company'].split()[0]), held_out
          )
    kept = {
      word
      for word in re.findall(r'[A-Z][a-z]+', _texts('eval', 300))
      if names.is_held_out(word)
    }
    trained = set(re.findall(r'[A-Z][a-z]+', _texts('train', 2500)))
    ordinary = set(re.findall(r'[A-Z][a-z]+', _templates()))
    self.assertEmpty((kept & trained) - ordinary)

  def test_some_passages_are_long(self):
    lengths = [
      len(passages.write_passage('eval', index).text.split())
      for index in range(300)
    ]
    self.assertGreater(sum(length > 300 for length in lengths), 10)
    self.assertLess(sum(length > 300 for length in lengths), 60)


def _templates() -> str:
  """Returns the words of the templates with a capital letter.

  Other words with a capital letter are invented names.
  """
  parts = [*names.COMPANY_TAILS, *lexicon.DAYS, *lexicon.MONTHS]
  parts += [*lexicon.OPENERS.known, *lexicon.ASIDES.known]
  parts += [*lexicon.FOLLOW_UPS.known, *lexicon.TURNS.known]
  parts += [*_UNSEEN, *lexicon.QUOTES.known]
  for event in events.EVENTS.values():
    parts += [text for wordings in event.facts for text in wordings]
    parts += [quote for quote, _ in event.quotes]
    parts.append(event.role.capitalize())
    for pairs in event.pairs.values():
      parts += [long[:1].upper() + long[1:] for long, _ in pairs]
      parts += [long for long, _ in pairs]
  return ' '.join(parts)


if __name__ == '__main__':
  absltest.main()
