"""Writes sentences about events and records the place of each value.

The stories of the bundled GPT-J and Llama (`corpus.py`) and the passages of the
bundled BERT (`bundled/bert/passages.py`) consist of such sentences. The
split 'eval' has its own names (`names.py`). It uses the wordings of training
and some additional ones (`events.py`, `lexicon.py`).
"""

from collections.abc import Mapping, Sequence
import dataclasses
import random
import re
import string

from bundled.news import events
from bundled.news import lexicon
from bundled.news import names

# The probability that the evaluation uses a wording that training never has.
UNSEEN_SHARE = 0.25
_HELD_OUT_SPLIT = 'eval'

CHOICE = re.compile(r'\[([^\[\]]*)\]')
# A sentence ends at a full stop, which may be within quotation marks.
_SENTENCE_END = re.compile(r'(?:(?<=[.])|(?<=[.]")) (?=[A-Z0-9"])')


@dataclasses.dataclass
class Sentence:
  """A sentence of a text.

  Attributes:
    text: The sentence.
    event: The number of the event that it is about; None if there is none.
    starts: The position of the first character of a value in the sentence, by
      slot.
  """

  text: str
  event: int | None = None
  starts: dict[str, int] = dataclasses.field(default_factory=dict)


def is_held_out(split: str) -> bool:
  """Returns True if the split has names and wordings that training lacks."""
  return split == _HELD_OUT_SPLIT


def sentences(text: str) -> list[str]:
  """Splits a story's article or highlights into sentences."""
  return _SENTENCE_END.split(text)


def choose_words(template: str, rng: random.Random) -> str:
  """Replaces every `[a|b]` in a template with a random choice."""
  return CHOICE.sub(lambda m: rng.choice(m.group(1).split('|')), template)


class Writer:
  """Draws the events, wordings and values of one text.

  Attributes:
    rng: The source of all random choices.
  """

  # The probability that a text has an opener, and that it mentions a person
  # again.
  _OPENER_SHARE: float
  _FOLLOW_UP_SHARE: float

  def __init__(self, split: str, seed: str):
    self.rng = random.Random(seed)
    self._held_out = is_held_out(split)

  def draw_kinds(self, counts: Mapping[int, int]) -> list[str]:
    """Draws types of events; `counts` has a weight for each number of them."""
    return self.rng.sample(sorted(events.EVENTS), self.weighted(counts))

  def weighted(self, weights: Mapping[int, int]) -> int:
    """Draws a key of `weights`."""
    return self.rng.choices(list(weights), list(weights.values()))[0]

  def slots(self, event: events.Event) -> dict[str, str]:
    """Draws all values that the templates of `event` may use."""
    rng, held_out = self.rng, self._held_out
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

  def word(self, known: Sequence[str], unseen: Sequence[str]) -> str:
    """Draws one of the wordings that the text's split may use."""
    if self._held_out and self.rng.random() < UNSEEN_SHARE:
      return self.rng.choice(unseen)
    return self.rng.choice(known)

  def fill(
    self, template: str, slots: Mapping[str, str], event: int | None = None
  ) -> Sentence:
    """Fills a template: random choices for `[a|b]`, values for `{slot}`."""
    text = ''
    starts: dict[str, int] = {}
    for words, slot, _, _ in string.Formatter().parse(
      choose_words(template, self.rng)
    ):
      text += words
      if slot is not None:
        starts.setdefault(slot.removesuffix('_cap'), len(text))
        text += slots[slot]
    return Sentence(text, event, starts)

  def tell(
    self, number: int, templates: list[str], slots: Mapping[str, str]
  ) -> list[Sentence]:
    """Returns the sentences of event `number` of the text, in any order."""
    rng = self.rng
    rng.shuffle(templates)
    sentences = [self.fill(text, slots, number) for text in templates]
    for person in ('name', 'rival', 'speaker'):
      if rng.random() < self._FOLLOW_UP_SHARE:
        self._follow_up(sentences, slots, person)
    if number:
      sentences.insert(0, self.fill(self.word(*lexicon.TURNS), slots))
    elif rng.random() < self._OPENER_SHARE:
      sentences.insert(0, self.fill(self.word(*lexicon.OPENERS), slots))
    return sentences

  def aside(self) -> Sentence:
    """Returns a sentence about other people, places and numbers."""
    template = self.word(*lexicon.ASIDES)
    rng, held_out = self.rng, self._held_out
    slots = {
      'o_name': names.person(rng, held_out),
      'o_town': names.town(rng, held_out),
      'o_year': str(rng.randint(1960, 2019)),
      'o_month': rng.choice(lexicon.MONTHS),
      'o_num': str(rng.randint(20, 990)),
      'o_small': str(rng.randint(2, 9)),
      'o_age': str(rng.randint(11, 79)),
    }
    return self.fill(template, slots)

  def _follow_up(
    self, sentences: list[Sentence], slots: Mapping[str, str], person: str
  ) -> None:
    """Inserts a sentence about `person` after the one that names them."""
    named = [i for i, one in enumerate(sentences) if person in one.starts]
    if not named:
      return
    name = slots[person]
    values = {'name': name, 'last': name.split()[-1], 'town': slots['town']}
    template = self.word(*lexicon.FOLLOW_UPS)
    index = self.rng.randint(named[0] + 1, len(sentences))
    sentences.insert(index, self.fill(template, values))
