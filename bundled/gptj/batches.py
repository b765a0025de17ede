"""Training stories as batches of token ids with loss weights."""

import random
from typing import NamedTuple, TypeAlias

import tokenizers
import torch

from bundled.gptj import corpus

_POOL = 512  # Stories sorted by length before they are cut into batches.


class Position(NamedTuple):
  """How far a stream has come: its pool's first story, batches drawn of it."""

  story: int
  drawn: int


# Ids of a prompt, its answer and the end, and how many are the prompt's.
_Row: TypeAlias = tuple[list[int], int]


class Batches:
  """An endless stream of (ids [B, T], loss weights [B, T]).

  A row is a prompt, its answer and the end of text, then padding. Weights are
  `article_weight` on the prompt, 1 on the answer and 0 on the padding.
  """

  def __init__(
    self,
    bpe: tokenizers.Tokenizer,
    end: int,
    tokens: int,
    longest: int,
    article_weight: float,
  ):
    """Creates the stream at its beginning.

    Args:
      bpe: the model's tokenizer.
      end: id of the end of text, also the padding.
      tokens: most tokens of a batch, padding included.
      longest: most tokens of a row; what is longer loses its end.
      article_weight: loss weight of a prompt's tokens.
    """
    self._bpe = bpe
    self._end = end
    self._tokens = tokens
    self._longest = longest
    self._article_weight = article_weight
    self._next_story = 0
    self._drawn = 0
    self._ready: list[list[_Row]] = []

  @property
  def position(self) -> Position:
    """What `seek` takes to go on from here."""
    story = self._next_story - _POOL if self._ready else self._next_story
    return Position(story, self._drawn if self._ready else 0)

  def seek(self, position: Position) -> None:
    """Goes to a position of this or an equal stream."""
    self._next_story = position.story
    self._ready = []
    for _ in range(position.drawn):
      self._next_rows()

  def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the next batch."""
    rows = self._next_rows()
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), self._end)
    weights = torch.zeros((len(rows), width))
    for i, (row, prompt) in enumerate(rows):
      ids[i, : len(row)] = torch.tensor(row)
      weights[i, :prompt] = self._article_weight
      weights[i, prompt : len(row)] = 1.0
    return ids, weights

  def _next_rows(self) -> list[_Row]:
    if not self._ready:
      self._fill()
      self._drawn = 0
    self._drawn += 1
    return self._ready.pop()

  def _fill(self) -> None:
    pool = list(corpus.stories('train', _POOL, self._next_story))
    self._next_story += _POOL
    rows: list[_Row] = []
    for story in pool:
      prompt = self._bpe.encode(story.prompt).ids
      answer = self._bpe.encode(' ' + story.output).ids
      ids = [*prompt, *answer, self._end][: self._longest]
      rows.append((ids, len(prompt)))
    rows.sort(key=lambda row: len(row[0]))
    batch: list[_Row] = []
    for row in rows:
      if (len(batch) + 1) * len(row[0]) > self._tokens:
        self._ready.append(batch)
        batch = []
      batch.append(row)
    self._ready.append(batch)
    random.Random(self._next_story).shuffle(self._ready)
