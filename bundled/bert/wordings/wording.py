"""The form of a question: what it asks for and how it may be worded.

Templates are written as those of `bundled/gptj/event.py`: `{slot}` for a
value of the story, `[a|b]` for a free choice of words.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import TypeAlias


@dataclasses.dataclass(frozen=True)
class Wording:
  """A question about one slot of an event.

  Attributes:
    answer: the answer as a template. It begins with the slot asked for, and
      the words after the slot follow it in every wording of the fact.
    known: what training and evaluation may say.
    unseen: what only the evaluation says.
  """

  answer: str
  known: Sequence[str]
  unseen: Sequence[str]

  @property
  def slot(self) -> str:
    """Name of the slot that is asked for."""
    return self.answer[1 : self.answer.index('}')]


# Questions about one kind of event by its name in `events.EVENTS`.
Wordings: TypeAlias = Mapping[str, Sequence[Wording]]
