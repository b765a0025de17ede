"""Writes the articles that questions are about, with each value's position.

Facts, names, openers and sentences about other people are those of the bundled
GPT-J's stories (`bundled/news`). Here, the position of every value of a fact is
recorded. The answer to a question about a fact is therefore an exact span of
the text. A passage is a pure function of (split, index).
"""

from collections.abc import Sequence
import dataclasses

from bundled.news import events
from bundled.news import lexicon
from bundled.news import writing

# The weights of the numbers of events in a passage, and of the numbers of other
# sentences. Long passages exceed the 384 tokens that the model reads at once.
_EVENT_COUNTS = {1: 70, 2: 24, 3: 6}
_ASIDES = (0, 1, 1, 2, 2, 3, 4, 5)
_LONG_SHARE = 0.08
_LONG_ASIDES = (14, 26)

_QUOTE_SHARE = 0.5


@dataclasses.dataclass(frozen=True)
class Event:
  """An event of a passage.

  Attributes:
    kind: The name in `events.EVENTS`.
    slots: The values that were drawn for it, by slot.
    starts: The position of the first character of a value in the text, by slot.
      It covers the values in facts and in the quote.
  """

  kind: str
  slots: dict[str, str]
  starts: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Passage:
  """A text and its events."""

  text: str
  events: Sequence[Event]


def write_passage(split: str, index: int) -> Passage:
  """Returns passage number `index` of `split`, such as 'train' or 'eval'."""
  return _Writer(split, f'passage/{split}/{index}').passage()


class _Writer(writing.Writer):
  """Writes one passage."""

  _OPENER_SHARE = 0.6
  _FOLLOW_UP_SHARE = 0.3

  def passage(self) -> Passage:
    rng = self.rng
    kinds = self.draw_kinds(_EVENT_COUNTS)
    drawn = [Event(kind, self.slots(events.EVENTS[kind]), {}) for kind in kinds]
    sentences: list[writing.Sentence] = []
    for number, event in enumerate(drawn):
      sentences += self._event(number, event)
    asides = rng.choice(_ASIDES)
    if rng.random() < _LONG_SHARE:
      asides = rng.randint(*_LONG_ASIDES)
    for _ in range(asides):
      index = rng.randint(0, len(sentences))
      sentences.insert(index, self.aside())
    start = 0
    for one in sentences:
      if one.event is not None:
        for slot, index in one.starts.items():
          drawn[one.event].starts.setdefault(slot, start + index)
      start += len(one.text) + 1
    return Passage(' '.join(one.text for one in sentences), drawn)

  def _event(self, number: int, drawn: Event) -> list[writing.Sentence]:
    """Returns the sentences of event `number` of the passage."""
    event = events.EVENTS[drawn.kind]
    templates = [
      self.word(known, [unseen])
      for known, unseen in zip(event.facts, event.unseen)
    ]
    if self.rng.random() < _QUOTE_SHARE:
      templates.append(self.word(*lexicon.QUOTES))
    return self.tell(number, templates, drawn.slots)
