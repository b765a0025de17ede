"""Loads the types of events by name: facts, highlights and quotes.

A template contains `{slot}` for a value of the story, and `[a|b]` for a free
choice of words. `facts` are stated once each, in any order. `highlights` are
the sentences of the summary, in this order. `told_by` names the facts that each
highlight uses. `unseen` has one more wording of each fact, which only the
evaluation's articles use. `pairs` are ideas with the article's wording and the
highlights' wording: slot `x` and slot `x_short`. `quotes` are the words of the
speaker and a short version of them.
"""

from collections.abc import Mapping, Sequence
import dataclasses

from bundled.news import phrases


@dataclasses.dataclass(frozen=True)
class Event:
  """A type of event."""

  role: str  # The role of the speaker.
  facts: Sequence[Sequence[str]]  # One inner list of wordings per fact.
  unseen: Sequence[str]  # One wording per fact, never in training.
  highlights: Sequence[Sequence[str]]
  # The indices of the facts of each highlight.
  told_by: Sequence[Sequence[int]]
  pairs: Mapping[str, Sequence[tuple[str, str]]]
  quotes: Sequence[tuple[str, str]]
  numbers: Mapping[str, tuple[int, int]]  # The inclusive range of each slot.


EVENTS: Mapping[str, Event] = {
  kind: Event(**fields)
  for kind, fields in phrases.load(
    __file__, 'incidents', 'public_life', 'economy'
  ).items()
}
