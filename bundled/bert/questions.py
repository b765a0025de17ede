"""Asks questions about a passage; each answer is an exact span of its text."""

from collections.abc import Sequence
import dataclasses
import random

from bundled.bert import passages
from bundled.bert import wordings
from bundled.news import writing


@dataclasses.dataclass(frozen=True)
class Question:
  """A question and its answer.

  Attributes:
    text: The question.
    answer: The answer, as in the passage.
    start: The position of the answer's first character in the passage.
    topic: The event type and the slot, for example 'fire/hurt'.
    seen: True if training may use the same wording.
  """

  text: str
  answer: str
  start: int
  topic: str
  seen: bool


def topics() -> list[str]:
  """Returns all values of `Question.topic` in a fixed order."""
  return [
    f'{kind}/{one.slot}'
    for kind, kind_wordings in wordings.WORDINGS.items()
    for one in kind_wordings
  ]


def answers(passage: passages.Passage) -> dict[str, tuple[int, int]]:
  """Returns the (start, end) characters of every topic in the passage.

  Raises:
    ValueError: The answer of a wording differs from the text of the passage.
  """
  spans = {}
  for event in passage.events:
    for one in wordings.WORDINGS[event.kind]:
      if one.slot in event.starts:
        start = event.starts[one.slot]
        text = one.answer.format(**event.slots)
        found_text = passage.text[start : start + len(text)]
        if found_text.lower() != text.lower():
          raise ValueError(
            f'{event.kind}: the answer is "{text}", but the passage has'
            f' "{found_text}" at its position.'
          )
        spans[f'{event.kind}/{one.slot}'] = (start, start + len(text))
  return spans


def ask(
  split: str, index: int, passage: passages.Passage, most: int
) -> list[Question]:
  """Returns up to `most` questions about passage `index` of `split`.

  The questions are about different values and have a random order. They are a
  pure function of the arguments.
  """
  rng = random.Random(f'question/{split}/{index}')
  spans = answers(passage)
  choices = [
    (event, one)
    for event in passage.events
    for one in wordings.WORDINGS[event.kind]
    if f'{event.kind}/{one.slot}' in spans
  ]
  result = []
  for event, one in rng.sample(choices, min(most, len(choices))):
    topic = f'{event.kind}/{one.slot}'
    start, end = spans[topic]
    unseen = writing.is_held_out(split) and rng.random() < writing.UNSEEN_SHARE
    template = _choose(one.unseen if unseen else one.known, rng)
    result.append(
      Question(
        text=template.format(**event.slots),
        answer=passage.text[start:end],
        start=start,
        topic=topic,
        seen=not unseen,
      )
    )
  return result


def tidy(text: str) -> str:
  """Removes the spaces that an empty choice leaves in a question."""
  return ' '.join(text.split()).replace(' ?', '?')


def _choose(templates: Sequence[str], rng: random.Random) -> str:
  """Returns a template with random choices."""
  return tidy(writing.choose_words(rng.choice(templates), rng))
