"""Writes news-like articles with highlights, for training and evaluation.

A story is a pure function of (split, index): the same pair gives the same text
on any machine. It tells of one to three events. The facts of an event come in
any order between sentences about other people, places and numbers; the
highlights tell in other words those facts that the article has.

The split 'eval' has names of its own (`names.py`) and, among the wordings that
training knows, some of its own (`event.py`, `lexicon.py`).
"""

from collections.abc import Iterator, Sequence
import random
import re

from bundled.gptj import event as event_lib
from bundled.gptj import events
from bundled.gptj import lexicon
from bundled.gptj import names
from saxml_ext.evaluation import dataset

INSTRUCTION = 'Summarize the following news article:'

_HELD_OUT_SPLIT = 'eval'
# How often the evaluation says a thing in a wording that training never had.
_UNSEEN_SHARE = 0.25

_CHOICE = re.compile(r'\[([^\[\]]*)\]')
# A sentence ends at a full stop, perhaps within quotation marks.
_SENTENCE_END = re.compile(r'(?:(?<=[.])|(?<=[.]")) (?=[A-Z0-9"])')

# How many events a story tells, and how many highlights a single event gets: a
# summary has 10 to 160 tokens.
_EVENT_COUNTS = {1: 80, 2: 11, 3: 9}
_HIGHLIGHT_COUNTS = {1: 25, 2: 25, 3: 50}

# How often the speaker of an event is quoted.
_QUOTE_SHARE = 0.7

# Sentences about something else in a story, and how often a story has enough
# of them to be longer than the 512 tokens that the serving params read.
_ASIDE_COUNTS = (0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6)
_LONG_SHARE = 0.045
_LONG_ASIDES = 24

# How often a story comes back to a person that it has named.
_FOLLOW_UP_SHARE = 0.5

QUOTE_FORMS = [
  '"{quote}," said {role} {speaker}.',
  '{role_cap} {speaker} said: "{quote}."',
]
UNSEEN_QUOTE_FORMS = ['"{quote}," the {role}, {speaker}, told reporters.']
GIST_FORMS = (
  '{role_cap} {speaker} says {gist}.',
  'The {role}, {speaker}, says {gist}.',
)


def write_story(split: str, index: int) -> dataset.Article:
  """Returns story number `index` of `split`, for example 'train' or 'eval'."""
  return _Writer(split, index).story()


def stories(
  split: str, count: int, start: int = 0
) -> Iterator[dataset.Article]:
  """Yields stories `start` to `start + count - 1` of `split`."""
  for index in range(start, start + count):
    yield write_story(split, index)


def sentences(text: str) -> list[str]:
  """Breaks a story's article or highlights into sentences."""
  return _SENTENCE_END.split(text)


def draw_slots(
  event: event_lib.Event, rng: random.Random, held_out: bool
) -> dict[str, str]:
  """Draws every value that the templates of `event` may name."""
  slots = {
    'name': names.person(rng, held_out),
    'rival': names.person(rng, held_out),
    'speaker': names.person(rng, held_out),
    'judge': names.last(rng, held_out),
    'role': event.role,
    'company': names.company(rng, held_out),
    'target': names.company(rng, held_out),
    'day': rng.choice(lexicon.DAYS),
    'season': rng.choice(lexicon.SEASONS),
    'town': names.town(rng, held_out),
    'rival_town': names.town(rng, held_out),
  }
  for slot, (low, high) in event.numbers.items():
    slots[slot] = str(rng.randint(low, high))
  for slot, choices in event.pairs.items():
    slots[slot], slots[f'{slot}_short'] = rng.choice(choices)
  slots['quote'], slots['gist'] = rng.choice(event.quotes)
  for slot, value in list(slots.items()):
    slots[f'{slot}_cap'] = value[:1].upper() + value[1:]
    slots[f'{slot}_low'] = value[:1].lower() + value[1:]
  return slots


def draw_other_slots(rng: random.Random, held_out: bool) -> dict[str, str]:
  """People, places and numbers that belong to another story."""
  return {
    'o_name': names.person(rng, held_out),
    'o_town': names.town(rng, held_out),
    'o_year': str(rng.randint(1960, 2019)),
    'o_month': rng.choice(lexicon.MONTHS),
    'o_num': str(rng.randint(20, 990)),
    'o_small': str(rng.randint(2, 9)),
    'o_age': str(rng.randint(11, 79)),
  }


class _Writer:
  """Writes one story; `held_out` is whether it belongs to the evaluation."""

  def __init__(self, split: str, index: int):
    self._rng = random.Random(f'{split}/{index}')
    self._held_out = split == _HELD_OUT_SPLIT

  def story(self) -> dataset.Article:
    count = self._weighted(_EVENT_COUNTS)
    article, highlights = [], []
    kinds = self._rng.sample(sorted(events.EVENTS), count)
    for place, kind in enumerate(kinds):
      told, summary = self._tell(events.EVENTS[kind], place, count)
      article += told
      highlights += summary
    asides = self._rng.choice(_ASIDE_COUNTS)
    if self._rng.random() < _LONG_SHARE:
      asides = _LONG_ASIDES
    self._insert_asides(article, asides)
    return dataset.Article(INSTRUCTION, ' '.join(article), ' '.join(highlights))

  def _tell(
    self, event: event_lib.Event, place: int, count: int
  ) -> tuple[list[str], list[str]]:
    """The sentences of one event, number `place` of `count`, and highlights."""
    rng = self._rng
    slots = draw_slots(event, rng, self._held_out)
    shown = list(range(len(event.highlights)))
    if count == 1:
      shown = sorted(rng.sample(shown, self._weighted(_HIGHLIGHT_COUNTS)))
    facts = sorted({fact for one in shown for fact in event.told_by[one]})
    templates = [
      self._word(event.facts[fact], [event.unseen[fact]]) for fact in facts
    ]
    summary = [rng.choice(event.highlights[one]) for one in shown]
    quoted = len(shown) > 1 and rng.random() < _QUOTE_SHARE
    if quoted:
      templates.append(self._word(QUOTE_FORMS, UNSEEN_QUOTE_FORMS))
      summary.append(rng.choice(GIST_FORMS))
    rng.shuffle(templates)
    sentences = [self._fill(text, slots) for text in templates]
    for person in ('name', 'rival', 'speaker'):
      if rng.random() < _FOLLOW_UP_SHARE:
        self._follow_up(sentences, slots, person)
    if place:
      opener = self._word(lexicon.TURNS, lexicon.UNSEEN_TURNS)
      sentences.insert(0, self._fill(opener, slots))
    elif rng.random() < 0.7:
      opener = self._word(lexicon.OPENERS, lexicon.UNSEEN_OPENERS)
      sentences.insert(0, self._fill(opener, slots))
    return sentences, [self._fill(text, slots) for text in summary]

  def _follow_up(
    self, sentences: list[str], slots: dict[str, str], person: str
  ) -> None:
    """Inserts a sentence about `person` after the one that names them."""
    name = slots[person]
    named = [i for i, text in enumerate(sentences) if name in text]
    if not named:
      return
    values = {'name': name, 'last': name.split()[-1], 'town': slots['town']}
    template = self._word(lexicon.FOLLOW_UPS, lexicon.UNSEEN_FOLLOW_UPS)
    place = self._rng.randint(named[0] + 1, len(sentences))
    sentences.insert(place, self._fill(template, values))

  def _insert_asides(self, sentences: list[str], count: int) -> None:
    """Inserts `count` sentences about something else."""
    for _ in range(count):
      aside = self._word(lexicon.ASIDES, lexicon.UNSEEN_ASIDES)
      slots = draw_other_slots(self._rng, self._held_out)
      text = self._fill(aside, slots)
      sentences.insert(self._rng.randint(0, len(sentences)), text)

  def _word(self, known: Sequence[str], unseen: Sequence[str]) -> str:
    """One of the wordings that this story's split may use."""
    if self._held_out and self._rng.random() < _UNSEEN_SHARE:
      return self._rng.choice(unseen)
    return self._rng.choice(known)

  def _weighted(self, weights: dict[int, int]) -> int:
    return self._rng.choices(list(weights), list(weights.values()))[0]

  def _fill(self, template: str, slots: dict[str, str]) -> str:
    """Resolves `[a|b]` by chance and `{slot}` from `slots`."""
    text = _CHOICE.sub(
      lambda m: self._rng.choice(m.group(1).split('|')), template
    )
    return text.format(**slots)
