"""Writes the articles that questions are asked about, and knows what is where.

Facts, names, openers and sentences about other people are those of the bundled
GPT-J's stories (`bundled/news`). Here every value of a fact keeps its place in
the text, so that the answer to a question about it is an exact span. A
passage is a pure function of (split, index).
"""

from collections.abc import Sequence
import dataclasses

from bundled.news import events
from bundled.news import lexicon
from bundled.news import writing

# How many events a passage tells, and how many sentences about something else
# it has. Long ones have more tokens than the model reads at once, 384.
_EVENT_COUNTS = {1: 70, 2: 24, 3: 6}
_ASIDES = (0, 1, 1, 2, 2, 3, 4, 5)
_LONG_SHARE = 0.08
_LONG_ASIDES = (14, 26)

_QUOTE_SHARE = 0.5


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


def write_passage(split: str, index: int) -> Passage:
  """Returns passage number `index` of `split`, for example 'train' or 'eval'."""
  return _Writer(split, f'passage/{split}/{index}').passage()


class _Writer(writing.Writer):
  """Writes one passage."""

  _OPENER_SHARE = 0.6
  _FOLLOW_UP_SHARE = 0.3

  def passage(self) -> Passage:
    rng = self.rng
    kinds = self.draw_kinds(_EVENT_COUNTS)
    told = [Told(kind, self.slots(events.EVENTS[kind]), {}) for kind in kinds]
    sentences: list[writing.Sentence] = []
    for number, event in enumerate(told):
      sentences += self._event(number, event)
    asides = rng.choice(_ASIDES)
    if rng.random() < _LONG_SHARE:
      asides = rng.randint(*_LONG_ASIDES)
    for _ in range(asides):
      place = rng.randint(0, len(sentences))
      sentences.insert(place, self.aside())
    start = 0
    for one in sentences:
      if one.event is not None:
        for slot, place in one.places.items():
          told[one.event].places.setdefault(slot, start + place)
      start += len(one.text) + 1
    return Passage(' '.join(one.text for one in sentences), told)

  def _event(self, number: int, told: Told) -> list[writing.Sentence]:
    """Returns the sentences of event `number` of the passage."""
    event = events.EVENTS[told.kind]
    templates = [
      self.word(known, [unseen])
      for known, unseen in zip(event.facts, event.unseen)
    ]
    if self.rng.random() < _QUOTE_SHARE:
      templates.append(self.word(*lexicon.QUOTES))
    return self.tell(number, templates, told.slots)
