"""Training questions as rows of token ids with the places of their answers."""

from collections.abc import Iterator, Sequence
import dataclasses
import random

import tokenizers

from bundled.bert import passages
from bundled.bert import questions

# Most questions of a visit to a passage.
_QUESTIONS = 4
# Most tokens of a question, as in the features of the evaluation.
_QUESTION_TOKENS = 64
# How many windows that do not hold the answer are kept, as a share.
_EMPTY_SHARE = 0.3


@dataclasses.dataclass(frozen=True)
class Row:
  """[CLS] question [SEP] passage [SEP], or a window of the passage.

  Attributes:
    ids: token ids.
    first: position of the passage's first token; the type id is 1 from there.
    start: position of the answer's first token, 0 if it is not in the window.
    end: position of the answer's last token, 0 if it is not in the window.
    topic: index in `questions.topics()` of what is asked for.
    tags: per token what it says: 0 nothing, 1 + 2 * topic the first token of
      that topic's value, 2 + 2 * topic its other tokens.
  """

  ids: Sequence[int]
  first: int
  start: int
  end: int
  topic: int
  tags: Sequence[int]


TAGS = 1 + 2 * len(questions.topics())


class Reader:
  """Turns training passages into rows of at most `longest` tokens."""

  def __init__(self, vocabulary: str, longest: int):
    """Reads the tokens of the file `vocabulary`."""
    self._pieces = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
    self._longest = longest
    self._topics = {name: i for i, name in enumerate(questions.topics())}
    self._cls = self._pieces.token_to_id('[CLS]')
    self._sep = self._pieces.token_to_id('[SEP]')
    self.hidden = self._pieces.token_to_id('[MASK]')

  def rows(self, index: int) -> Iterator[Row]:
    """Yields rows of training passage number `index`."""
    passage = passages.write_passage('train', index)
    rng = random.Random(f'window/{index}')
    encoded = self._pieces.encode(passage.text, add_special_tokens=False)
    begins = {begin: i for i, (begin, _) in enumerate(encoded.offsets)}
    ends = {end: i for i, (_, end) in enumerate(encoded.offsets)}
    spans = {
      topic: (begins[start], ends[stop])
      for topic, (start, stop) in questions.answers(passage).items()
    }
    tags = [0] * len(encoded.ids)
    for topic, (start, last) in spans.items():
      tag = 1 + 2 * self._topics[topic]
      tags[start : last + 1] = [tag] + [tag + 1] * (last - start)
    for asked in questions.ask('train', index, passage, _QUESTIONS):
      question = self._pieces.encode(asked.text, add_special_tokens=False)
      head = [self._cls, *question.ids[:_QUESTION_TOKENS], self._sep]
      room = self._longest - len(head) - 1
      start, last = spans[asked.topic]
      low = 0
      if len(tags) > room:
        low = rng.randint(0, len(tags) - room)
      held = low <= start and last < low + room
      if not held and rng.random() > _EMPTY_SHARE:
        # Move the window so that the answer is somewhere within.
        low = rng.randint(max(0, last - room + 1), min(start, len(tags) - room))
        held = True
      shift = len(head) - low
      yield Row(
        ids=[*head, *encoded.ids[low : low + room], self._sep],
        first=len(head),
        start=start + shift if held else 0,
        end=last + shift if held else 0,
        topic=self._topics[asked.topic],
        tags=[0] * len(head) + tags[low : low + room] + [0],
      )
