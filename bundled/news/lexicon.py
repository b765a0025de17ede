"""Days, months and the sentences around the facts of a story."""

from collections.abc import Sequence
from typing import NamedTuple

from bundled.news import phrases


class Templates(NamedTuple):
  """Sentences to choose from, written as those of `events.py`.

  Attributes:
    known: What training and evaluation may say.
    unseen: What only the evaluation says.
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
