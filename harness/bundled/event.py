"""The form of a story: facts, highlights and quotes.

A template holds `{slot}` for a value of the story and `[a|b]` for a free
choice of words. `facts` are told once each, in any order; `highlights` are the
sentences of the summary, in this order. `pairs` are ideas with the article's
wording and the highlights' wording: slot `x` and slot `x_short`. `quotes` are
what the speaker says and its gist.
"""

import dataclasses
from typing import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Event:
  """One type of story."""

  role: str  # Who the speaker is.
  facts: Sequence[Sequence[str]]  # One inner list of wordings per fact.
  highlights: Sequence[Sequence[str]]
  pairs: Mapping[str, Sequence[tuple[str, str]]]
  quotes: Sequence[tuple[str, str]]
  numbers: Mapping[str, tuple[int, int]]  # Slot -> inclusive range.
