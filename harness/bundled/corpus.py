"""Writes news-like articles with highlights, for training and evaluation.

A story is a pure function of (split, index): the same pair gives the same text
on any machine. Facts come in any order between sentences about other people,
places and numbers; the highlights tell the facts that matter in other words.
"""

import random
import re
from typing import Iterator

from harness.bundled import event as event_lib
from harness.bundled import events
from harness.bundled import lexicon
from saxml_ext.common import dataset

INSTRUCTION = 'Summarize the following news article:'

_CHOICE = re.compile(r'\[([^\[\]]*)\]')

# Sentences about something else in a story: most articles are short, some run
# to 350 tokens.
_ASIDE_COUNTS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 11)

# How often a story comes back to a person that it has named.
_FOLLOW_UP_SHARE = 0.6

_QUOTE_FORMS = (
    '"{quote}," said {role} {speaker}.',
    '{role_cap} {speaker} said: "{quote}."',
    '"{quote}," the {role}, {speaker}, told reporters.',
)
_GIST_FORMS = (
    '{role_cap} {speaker} says {gist}.',
    'The {role}, {speaker}, says {gist}.',
)


def write_story(split: str, index: int) -> dataset.Article:
  """Returns story number `index` of `split`, for example 'train' or 'eval'."""
  rng = random.Random(f'{split}/{index}')
  event = events.EVENTS[rng.choice(sorted(events.EVENTS))]
  slots = _draw_slots(rng, event)
  templates = [rng.choice(wordings) for wordings in event.facts]
  templates.append(rng.choice(_QUOTE_FORMS))
  rng.shuffle(templates)
  sentences = [_fill(rng, text, slots) for text in templates]
  for person in ('name', 'rival', 'speaker'):
    if rng.random() < _FOLLOW_UP_SHARE:
      _follow_up(rng, sentences, slots, person)
  count = rng.choice(_ASIDE_COUNTS)
  for aside in rng.sample(lexicon.ASIDES, count):
    sentence = _fill(rng, aside, _other_slots(rng))
    sentences.insert(rng.randint(0, len(sentences)), sentence)
  if rng.random() < 0.7:
    sentences.insert(0, _fill(rng, rng.choice(lexicon.OPENERS), slots))
  article = ' '.join(sentences)
  summary = [rng.choice(wordings) for wordings in event.highlights]
  summary.append(rng.choice(_GIST_FORMS))
  highlights = ' '.join(_fill(rng, text, slots) for text in summary)
  return dataset.Article(INSTRUCTION, article, highlights)


def stories(
    split: str, count: int, start: int = 0
) -> Iterator[dataset.Article]:
  """Yields stories `start` to `start + count - 1` of `split`."""
  for index in range(start, start + count):
    yield write_story(split, index)


def _draw_slots(rng: random.Random, event: event_lib.Event) -> dict[str, str]:
  """Draws every value that the templates of `event` may name."""
  slots = {
      'name': _name(rng),
      'rival': _name(rng),
      'speaker': _name(rng),
      'judge': rng.choice(lexicon.LAST_NAMES),
      'role': event.role,
      'company': _company(rng),
      'target': _company(rng),
      'day': rng.choice(lexicon.DAYS),
      'season': rng.choice(lexicon.SEASONS),
  }
  slots['town'], slots['rival_town'] = rng.sample(lexicon.TOWNS, 2)
  for slot, (low, high) in event.numbers.items():
    slots[slot] = str(rng.randint(low, high))
  for slot, choices in event.pairs.items():
    slots[slot], slots[f'{slot}_short'] = rng.choice(choices)
  slots['quote'], slots['gist'] = rng.choice(event.quotes)
  for slot, value in list(slots.items()):
    slots[f'{slot}_cap'] = value[:1].upper() + value[1:]
    slots[f'{slot}_low'] = value[:1].lower() + value[1:]
  return slots


def _follow_up(
    rng: random.Random, sentences: list[str], slots: dict[str, str], person: str
) -> None:
  """Inserts a sentence about `person` after the one that names them, if any."""
  name = slots[person]
  named = [i for i, text in enumerate(sentences) if name in text]
  if not named:
    return
  values = {'name': name, 'last': name.split()[-1], 'town': slots['town']}
  sentence = _fill(rng, rng.choice(lexicon.FOLLOW_UPS), values)
  sentences.insert(rng.randint(named[0] + 1, len(sentences)), sentence)


def _other_slots(rng: random.Random) -> dict[str, str]:
  """People, places and numbers that belong to another story."""
  return {
      'o_name': _name(rng),
      'o_town': rng.choice(lexicon.TOWNS),
      'o_year': str(rng.randint(1960, 2019)),
      'o_month': rng.choice(lexicon.MONTHS),
      'o_num': str(rng.randint(20, 990)),
      'o_small': str(rng.randint(2, 9)),
      'o_age': str(rng.randint(11, 79)),
  }


def _fill(rng: random.Random, template: str, slots: dict[str, str]) -> str:
  """Resolves `[a|b]` by chance and `{slot}` from `slots`."""
  text = _CHOICE.sub(lambda m: rng.choice(m.group(1).split('|')), template)
  return text.format(**slots)


def _name(rng: random.Random) -> str:
  return (
      f'{rng.choice(lexicon.FIRST_NAMES)} ' f'{rng.choice(lexicon.LAST_NAMES)}'
  )


def _company(rng: random.Random) -> str:
  return (
      f'{rng.choice(lexicon.COMPANY_HEADS)} '
      f'{rng.choice(lexicon.COMPANY_TAILS)}'
  )
