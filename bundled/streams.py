"""Defines endless streams of token rows, in batches of about the same size."""

import abc
from collections.abc import Sequence
import random
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch


class Row(Protocol):
  """A row of token ids."""

  @property
  def ids(self) -> Sequence[int]: ...


class Batch(Protocol):
  """Rows as tensors."""

  @property
  def ids(self) -> torch.Tensor:
    """The token ids, [B, T]."""
    ...


class Position(NamedTuple):
  """A position in a stream.

  Attributes:
    text: The number of the first text of the pool.
    drawn: The number of batches drawn from the pool.
  """

  text: int
  drawn: int


_Row = TypeVar('_Row', bound=Row)


class Stream(abc.ABC, Generic[_Row]):
  """A stream of batches; each is cut from a pool of rows sorted by length."""

  def __init__(self, pool: int, tokens: int):
    """Creates the stream at its beginning.

    Args:
      pool: The number of texts of a pool.
      tokens: The maximum number of tokens of a batch, including padding.
    """
    self._pool = pool
    self._tokens = tokens
    self._next_text = 0
    self._drawn = 0
    self._ready: list[list[_Row]] = []

  @property
  def position(self) -> Position:
    """The current position, from which `seek` can continue."""
    if not self._ready:
      return Position(self._next_text, 0)
    return Position(self._next_text - self._pool, self._drawn)

  def seek(self, position: Position) -> None:
    """Continues at a position of this stream or of an equal one."""
    self._next_text = position.text
    self._ready = []
    for _ in range(position.drawn):
      self._next_rows()

  @abc.abstractmethod
  def draw(self) -> Batch:
    """Returns the next batch."""

  @abc.abstractmethod
  def _read(self, texts: range, rng: random.Random) -> list[_Row]:
    """Returns the rows of a pool; sorting keeps the order of equal lengths."""

  def _next_rows(self) -> list[_Row]:
    while not self._ready:
      self._fill()
      self._drawn = 0
    self._drawn += 1
    return self._ready.pop()

  def _fill(self) -> None:
    texts = range(self._next_text, self._next_text + self._pool)
    self._next_text = texts.stop
    rng = random.Random(self._next_text)
    batch: list[_Row] = []
    for row in sorted(self._read(texts, rng), key=lambda row: len(row.ids)):
      if batch and (len(batch) + 1) * len(row.ids) > self._tokens:
        self._ready.append(batch)
        batch = []
      batch.append(row)
    if batch:
      self._ready.append(batch)
    rng.shuffle(self._ready)
