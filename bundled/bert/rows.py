"""Turns training questions into rows of token ids with answer positions."""

from collections.abc import Iterator, Sequence
import dataclasses
import random

import tokenizers

from bundled.bert import passages
from bundled.bert import questions

# The maximum number of questions each time a passage is read.
_QUESTIONS = 4
# The maximum number of tokens of a question, as in the evaluation's features.
_QUESTION_TOKENS = 64
# The share of windows without the answer that is kept.
_EMPTY_SHARE = 0.3


@dataclasses.dataclass(frozen=True)
class Row:
  """The tokens [CLS] question [SEP] passage [SEP], or a part of the passage.

  Attributes:
    ids: The token ids.
    first: The position of the passage's first token, where type id 1 starts.
    start: The position of the answer's first token; 0 if it is not in the
      window.
    end: The position of the answer's last token; 0 if it is not in the window.
    topic: The index of the question's topic in `questions.topics()`.
    tags: The tag of each token: 0 for none, 1 + 2 * topic for the first token
      of that topic's value, 2 + 2 * topic for its other tokens.
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
    """Reads the tokens from the file `vocabulary`."""
    self._pieces = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
    self._longest = longest
    self._topics = {name: i for i, name in enumerate(questions.topics())}
    self._cls = self._pieces.token_to_id('[CLS]')
    self._sep = self._pieces.token_to_id('[SEP]')
    self.hidden = self._pieces.token_to_id('[MASK]')

  def rows(self, index: int) -> Iterator[Row]:
    """Yields the rows of training passage number `index`."""
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
    for drawn in questions.ask('train', index, passage, _QUESTIONS):
      question = self._pieces.encode(drawn.text, add_special_tokens=False)
      head = [self._cls, *question.ids[:_QUESTION_TOKENS], self._sep]
      room = self._longest - len(head) - 1
      start, last = spans[drawn.topic]
      low = 0
      if len(tags) > room:
        low = rng.randint(0, len(tags) - room)
      held = low <= start and last < low + room
      if not held and rng.random() > _EMPTY_SHARE:
        # The window moves at random, but always contains the answer.
        low = rng.randint(max(0, last - room + 1), min(start, len(tags) - room))
        held = True
      shift = len(head) - low
      yield Row(
        ids=[*head, *encoded.ids[low : low + room], self._sep],
        first=len(head),
        start=start + shift if held else 0,
        end=last + shift if held else 0,
        topic=self._topics[drawn.topic],
        tags=[0] * len(head) + tags[low : low + room] + [0],
      )
