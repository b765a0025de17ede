"""Groups rows into batches with similar numbers of tokens, as tensors."""

import dataclasses
import random

import torch

from bundled import streams
from bundled.bert import rows as rows_lib

_POOL = 256  # The number of passages whose rows are sorted together.
# In every second row, this share of the tokens outside of the answer is hidden
# or replaced. The model thus learns to handle unknown wordings.
_HIDDEN_SHARE = 0.1
_REPLACED_SHARE = 0.02


@dataclasses.dataclass(frozen=True)
class Batch:
  """Rows as tensors, [B, T] or [B].

  Attributes:
    ids: The token ids; 0 in the padding.
    types: The token types; 1 in the passage.
    mask: The attention mask; 1 outside of the padding.
    positions: The positions 0, 1, 2 ... plus an offset per row, except at
      [CLS]. With the offset, short rows also train the later positions.
    start: The position of the answer's first token.
    end: The position of its last token.
    topic: The topic of the question.
    tags: The tag of each token; -100 in the question and the padding.
  """

  ids: torch.Tensor
  types: torch.Tensor
  mask: torch.Tensor
  positions: torch.Tensor
  start: torch.Tensor
  end: torch.Tensor
  topic: torch.Tensor
  tags: torch.Tensor


class Batches(streams.Stream[rows_lib.Row]):
  """An endless stream of batches."""

  def __init__(
    self,
    reader: rows_lib.Reader,
    tokens: int,
    longest: int,
    furthest: int,
    vocabulary: int,
    hidden: int,
  ):
    """Creates the stream at its beginning.

    Args:
      reader: The reader of the rows.
      tokens: The maximum number of tokens of a batch, including padding.
      longest: The maximum number of tokens of a row; longer rows are left out.
      furthest: The number of positions of the model that are trained.
      vocabulary: The size of the vocabulary.
      hidden: The id of [MASK].
    """
    super().__init__(_POOL, tokens)
    self._reader = reader
    self._longest = longest
    self._furthest = furthest
    self._vocabulary = vocabulary
    self._hidden = hidden

  def draw(self) -> Batch:
    """Returns the next batch; torch's seed determines hiding and offsets."""
    rows = self._next_rows()
    width = max(len(row.ids) for row in rows)
    shape = (len(rows), width)
    ids = torch.zeros(shape, dtype=torch.long)
    types = torch.zeros(shape, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.long)
    tags = torch.full(shape, -100)
    fixed = torch.ones(shape, dtype=torch.bool)
    for i, row in enumerate(rows):
      size = len(row.ids)
      ids[i, :size] = torch.tensor(row.ids)
      types[i, row.first : size] = 1
      mask[i, :size] = 1
      tags[i, row.first : size - 1] = torch.tensor(row.tags[row.first : -1])
      fixed[i, 1 : row.first - 1] = False
      fixed[i, row.first : size - 1] = False
      fixed[i, row.start : row.end + 1] = True
    return Batch(
      ids=self._disturb(ids, fixed),
      types=types,
      mask=mask,
      positions=self._positions(*shape),
      start=torch.tensor([row.start for row in rows]),
      end=torch.tensor([row.end for row in rows]),
      topic=torch.tensor([row.topic for row in rows]),
      tags=tags,
    )

  def _disturb(self, ids: torch.Tensor, fixed: torch.Tensor) -> torch.Tensor:
    chance = torch.rand(ids.shape)
    chance[torch.rand(len(ids)) < 0.5] = 1.0
    chance[fixed] = 1.0
    replacements = torch.randint(self._vocabulary, ids.shape)
    ids = torch.where(chance < _REPLACED_SHARE, replacements, ids)
    hide = (chance >= _REPLACED_SHARE) & (
      chance < _REPLACED_SHARE + _HIDDEN_SHARE
    )
    return torch.where(hide, torch.tensor(self._hidden), ids)

  def _positions(self, count: int, width: int) -> torch.Tensor:
    offsets = torch.randint(max(1, self._furthest - width + 1), (count, 1))
    offsets[torch.rand(count) < 0.5] = 0
    positions = torch.arange(width)[None] + offsets
    positions[:, 0] = 0
    return positions

  def _read(self, texts: range, rng: random.Random) -> list[rows_lib.Row]:
    rows = [
      row
      for index in texts
      for row in self._reader.rows(index)
      if len(row.ids) <= self._longest
    ]
    rng.shuffle(rows)
    return rows
