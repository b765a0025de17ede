"""Groups training stories into batches of token ids with loss weights."""

from collections.abc import Sequence
import random
from typing import NamedTuple

import tokenizers
import torch

from bundled import streams
from bundled.gptj import corpus

_POOL = 512  # The number of stories that are sorted together.


class Batch(NamedTuple):
  """Rows as tensors.

  Attributes:
    ids: The token ids, [B, T].
    weights: The loss weights, [B, T].
  """

  ids: torch.Tensor
  weights: torch.Tensor


class _Row(NamedTuple):
  ids: Sequence[int]  # The ids of a prompt, its answer and the end.
  prompt: int  # The number of ids of the prompt.


class Batches(streams.Stream[_Row]):
  """An endless stream of training stories.

  A row has a prompt, its answer, the end of text, and padding. The weights are
  `article_weight` for the prompt, 1 for the answer and 0 for the padding.
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
      bpe: The model's tokenizer.
      end: The id of the end of text, which is also the padding.
      tokens: The maximum number of tokens of a batch, including padding.
      longest: The maximum number of tokens of a row; longer rows are cut.
      article_weight: The loss weight of a prompt's tokens.
    """
    super().__init__(_POOL, tokens)
    self._bpe = bpe
    self._end = end
    self._longest = longest
    self._article_weight = article_weight

  def draw(self) -> Batch:
    """Returns the next batch."""
    rows = self._next_rows()
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), self._end)
    weights = torch.zeros((len(rows), width))
    for i, (row, prompt) in enumerate(rows):
      ids[i, : len(row)] = torch.tensor(row)
      weights[i, :prompt] = self._article_weight
      weights[i, prompt : len(row)] = 1.0
    return Batch(ids, weights)

  def _read(self, texts: range, rng: random.Random) -> list[_Row]:
    rows = []
    for story in corpus.stories('train', len(texts), texts.start):
      prompt = self._bpe.encode(story.prompt).ids
      answer = self._bpe.encode(' ' + story.output).ids
      ids = [*prompt, *answer, self._end][: self._longest]
      rows.append(_Row(ids, len(prompt)))
    return rows
