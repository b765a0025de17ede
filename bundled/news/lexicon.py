"""Loads days, months and the sentences around the facts of a story."""

from collections.abc import Sequence
from typing import NamedTuple

from bundled.news import phrases


class Templates(NamedTuple):
  """The sentences to choose from, in the format of `events.py`.

  Attributes:
    known: The sentences that training and evaluation may use.
    unseen: The sentences that only the evaluation uses.
  """

  known: Sequence[str]
  unseen: Sequence[str]


_tables = phrases.load(__file__, 'lexicon')

DAYS: Sequence[str] = _tables['days']
MONTHS: Sequence[str] = _tables['months']
SEASONS: Sequence[str] = _tables['seasons']
OPENERS = Templates(**_tables['openers'])
ASIDES = Templates(**_tables['asides'])
FOLLOW_UPS = Templates(**_tables['follow_ups'])
TURNS = Templates(**_tables['turns'])
QUOTES = Templates(**_tables['quotes'])
