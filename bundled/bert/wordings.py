"""Loads the wordings of questions about every type of event.

Templates have the format of `bundled/news/events.py`: `{slot}` for a value of
the story, `[a|b]` for a free choice of words.
"""

from collections.abc import Mapping, Sequence
import dataclasses

from bundled.news import events
from bundled.news import phrases


@dataclasses.dataclass(frozen=True)
class Wording:
  """A question about one slot of an event.

  Attributes:
    answer: The template of the answer. It begins with the slot of the question.
      The words after the slot follow it in every wording of the fact.
    known: The wordings that training and evaluation may use.
    unseen: The wordings that only the evaluation uses.
  """

  answer: str
  known: Sequence[str]
  unseen: Sequence[str]

  @property
  def slot(self) -> str:
    """The name of the slot that the question is about."""
    return self.answer[1 : self.answer.index('}')]


def _read() -> dict[str, list[Wording]]:
  tables = {
    kind: [Wording(**fields) for fields in wordings]
    for kind, wordings in phrases.load(
      __file__, 'incidents', 'public_life', 'economy', 'anyone'
    ).items()
  }
  age, *general = tables.pop('anyone')
  for kind, wordings in tables.items():
    ages = [age] if age.slot in events.EVENTS[kind].numbers else []
    wordings += ages + general
  return tables


# Maps the names of event types in `events.EVENTS` to their questions.
WORDINGS: Mapping[str, Sequence[Wording]] = _read()
