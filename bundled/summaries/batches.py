"""Groups training stories into batches of token ids with loss weights."""

from collections.abc import Callable, Sequence
import random
from typing import NamedTuple

import torch

from bundled import streams
from bundled.news import corpus
from saxml_ext.evaluation import dataset

_POOL = 512  # The number of stories that are sorted together.


class Batch(NamedTuple):
  """Rows as tensors.

  Attributes:
    ids: The token ids, [B, T].
    weights: The loss weights, [B, T].
  """

  ids: torch.Tensor
  weights: torch.Tensor


class Row(NamedTuple):
  """A story as a model reads it.

  Attributes:
    ids: The ids of a prompt, its answer and the end.
    prompt: The number of ids of the prompt.
  """

  ids: Sequence[int]
  prompt: int


# Makes the row of a story. A random number may decide its form.
RowMaker = Callable[[dataset.Article, random.Random], Row]


class Batches(streams.Stream[Row]):
  """An endless stream of training stories.

  A row has a prompt, its answer, an end id, and padding. The weights are
  `article_weight` for the prompt, 1 for the answer and 0 for the padding.
  """

  def __init__(
    self,
    row: RowMaker,
    padding: int,
    tokens: int,
    longest: int,
    article_weight: float,
  ):
    """Creates the stream at its beginning.

    Args:
      row: The function that makes the row of a story.
      padding: The id that follows shorter rows of a batch.
      tokens: The maximum number of tokens of a batch, including padding.
      longest: The maximum number of tokens of a row; longer rows are cut.
      article_weight: The loss weight of a prompt's tokens.
    """
    super().__init__(_POOL, tokens)
    self._row = row
    self._padding = padding
    self._longest = longest
    self._article_weight = article_weight

  def draw(self) -> Batch:
    """Returns the next batch."""
    rows = self._next_rows()
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), self._padding)
    weights = torch.zeros((len(rows), width))
    for i, (row, prompt) in enumerate(rows):
      ids[i, : len(row)] = torch.tensor(row)
      weights[i, :prompt] = self._article_weight
      weights[i, prompt : len(row)] = 1.0
    return Batch(ids, weights)

  def _read(self, texts: range, rng: random.Random) -> list[Row]:
    rows = []
    for story in corpus.stories('train', len(texts), texts.start):
      ids, prompt = self._row(story, rng)
      rows.append(Row(ids[: self._longest], prompt))
    return rows
