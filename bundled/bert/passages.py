"""Writes the articles that questions are asked about, and knows what is where.

Facts, names, openers and sentences about other people are those of the bundled
GPT-J's stories (`bundled/gptj/corpus.py`). Here every value of a fact keeps
its place in the text, so that the answer to a question about it is an exact
span. A passage is a pure function of (split, index); the split 'eval' has
names and wordings of its own, as there.
"""

from collections.abc import Sequence
import dataclasses
import random
import re
import string

from bundled.gptj import corpus
from bundled.gptj import event as event_lib
from bundled.gptj import events
from bundled.gptj import lexicon

# How often the evaluation says a thing in a wording that training never had.
UNSEEN_SHARE = 0.25

_HELD_OUT_SPLIT = 'eval'
_CHOICE = re.compile(r'\[([^\[\]]*)\]')

# How many events a passage tells, and how many sentences about something else
# it has. Long ones have more tokens than the model reads at once, 384.
_EVENT_COUNTS = {1: 70, 2: 24, 3: 6}
_ASIDES = (0, 1, 1, 2, 2, 3, 4, 5)
_LONG_SHARE = 0.08
_LONG_ASIDES = (14, 26)

_OPENER_SHARE = 0.6
_QUOTE_SHARE = 0.5
_FOLLOW_UP_SHARE = 0.3


@dataclasses.dataclass(frozen=True)
class Told:
  """An event of a passage.

  Attributes:
    kind: its name in `events.EVENTS`.
    slots: every value that was drawn for it.
    places: slot to the first character of its value in the text, for the
      values that a fact or the quote tells.
  """

  kind: str
  slots: dict[str, str]
  places: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Passage:
  """A text and the events that it tells of."""

  text: str
  told: Sequence[Told]


@dataclasses.dataclass
class _Sentence:
  """A sentence, the event it belongs to, and where its values are in it."""

  text: str
  event: int | None = None
  places: dict[str, int] = dataclasses.field(default_factory=dict)


def is_held_out(split: str) -> bool:
  """Whether the split has names and wordings that training never has."""
  return split == _HELD_OUT_SPLIT


def write_passage(split: str, index: int) -> Passage:
  """Returns passage number `index` of `split`, for example 'train' or 'eval'."""
  return _Writer(split, index).passage()


def choose_words(template: str, rng: random.Random) -> str:
  """Resolves every `[a|b]` of a template by chance."""
  return _CHOICE.sub(lambda m: rng.choice(m.group(1).split('|')), template)


class _Writer:
  """Writes one passage."""

  def __init__(self, split: str, index: int):
    self._rng = random.Random(f'passage/{split}/{index}')
    self._held_out = is_held_out(split)

  def passage(self) -> Passage:
    rng = self._rng
    counts = list(_EVENT_COUNTS)
    count = rng.choices(counts, list(_EVENT_COUNTS.values()))[0]
    kinds = rng.sample(sorted(events.EVENTS), count)
    drawn = [
      corpus.draw_slots(events.EVENTS[kind], rng, self._held_out)
      for kind in kinds
    ]
    sentences: list[_Sentence] = []
    for number, (kind, slots) in enumerate(zip(kinds, drawn)):
      sentences += self._tell(number, events.EVENTS[kind], slots)
    asides = rng.choice(_ASIDES)
    if rng.random() < _LONG_SHARE:
      asides = rng.randint(*_LONG_ASIDES)
    for _ in range(asides):
      place = rng.randint(0, len(sentences))
      sentences.insert(place, self._aside())
    told = [Told(kind, slots, {}) for kind, slots in zip(kinds, drawn)]
    start = 0
    for one in sentences:
      if one.event is not None:
        places = told[one.event].places
        for slot, place in one.places.items():
          places.setdefault(slot, start + place)
      start += len(one.text) + 1
    return Passage(' '.join(one.text for one in sentences), told)

  def _tell(
    self, number: int, event: event_lib.Event, slots: dict[str, str]
  ) -> list[_Sentence]:
    """The sentences of event `number` of the passage."""
    rng = self._rng
    templates = [
      self._word(known, [unseen])
      for known, unseen in zip(event.facts, event.unseen)
    ]
    if rng.random() < _QUOTE_SHARE:
      templates.append(
        self._word(corpus.QUOTE_FORMS, corpus.UNSEEN_QUOTE_FORMS)
      )
    rng.shuffle(templates)
    sentences = [self._fill(text, slots, number) for text in templates]
    for person in ('name', 'rival', 'speaker'):
      if rng.random() < _FOLLOW_UP_SHARE:
        self._follow_up(sentences, slots, person)
    if number:
      opener = self._word(lexicon.TURNS, lexicon.UNSEEN_TURNS)
      sentences.insert(0, self._fill(opener, slots))
    elif rng.random() < _OPENER_SHARE:
      opener = self._word(lexicon.OPENERS, lexicon.UNSEEN_OPENERS)
      sentences.insert(0, self._fill(opener, slots))
    return sentences

  def _follow_up(
    self, sentences: list[_Sentence], slots: dict[str, str], person: str
  ) -> None:
    """Inserts a sentence about `person` after the one that names them."""
    named = [i for i, one in enumerate(sentences) if person in one.places]
    if not named:
      return
    name = slots[person]
    values = {'name': name, 'last': name.split()[-1], 'town': slots['town']}
    template = self._word(lexicon.FOLLOW_UPS, lexicon.UNSEEN_FOLLOW_UPS)
    place = self._rng.randint(named[0] + 1, len(sentences))
    sentences.insert(place, self._fill(template, values))

  def _aside(self) -> _Sentence:
    """A sentence about something else."""
    template = self._word(lexicon.ASIDES, lexicon.UNSEEN_ASIDES)
    slots = corpus.draw_other_slots(self._rng, self._held_out)
    return self._fill(template, slots)

  def _word(self, known: Sequence[str], unseen: Sequence[str]) -> str:
    """One of the wordings that this passage's split may use."""
    if self._held_out and self._rng.random() < UNSEEN_SHARE:
      return self._rng.choice(unseen)
    return self._rng.choice(known)

  def _fill(
    self, template: str, slots: dict[str, str], event: int | None = None
  ) -> _Sentence:
    """Fills a template and notes where the values of its slots begin."""
    text = ''
    places: dict[str, int] = {}
    for words, slot, _, _ in string.Formatter().parse(
      choose_words(template, self._rng)
    ):
      text += words
      if slot is not None:
        places.setdefault(slot.removesuffix('_cap'), len(text))
        text += slots[slot]
    return _Sentence(text, event, places)
