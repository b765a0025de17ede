"""Loads texts to run a model on, as batches of token ids."""

from collections.abc import Sequence
import dataclasses
import os
import zlib

import numpy as np
import tokenizers

from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib
from saxml_ext.pax import errors

# The number of sequences in a batch. Their lengths are padded to multiples of
# _LENGTH_STEP, because few different lengths mean few compilations.
_BATCH = 8
# The number of articles whose logits are compared. At 50,400 tokens and 60
# positions each, the logits of two models need 0.8 GB.
LOGIT_ARTICLES = 32
_LENGTH_STEP = 64


@dataclasses.dataclass(frozen=True)
class Batch:
  """Sequences that are padded on the right.

  Attributes:
    tokens: The token ids, [B, T] int32.
    real: The mask of tokens that are not padding, [B, T] bool.
    answers: The mask of positions that predict an answer token, [B, T] bool.
  """

  tokens: np.ndarray
  real: np.ndarray
  answers: np.ndarray


@dataclasses.dataclass(frozen=True)
class Texts:
  """Sequences sorted by length, in batches."""

  batches: tuple[Batch, ...]

  @property
  def num_tokens(self) -> int:
    return sum(int(batch.real.sum()) for batch in self.batches)

  @property
  def crc32(self) -> int:
    """The checksum of all token ids."""
    value = 0
    for batch in self.batches:
      value = zlib.crc32(batch.tokens[batch.real].astype('<i4'), value)
    return value


def load_articles(path: str, count: int = 0) -> tuple[dataset.Article, ...]:
  """Reads articles.

  Args:
    path: The file of articles.
    count: The maximum number of articles; 0 means all.

  Raises:
    errors.CheckpointError: The file does not exist or has another format.
  """
  try:
    articles = dataset.load_articles(path)
  except (OSError, ValueError) as e:
    raise errors.CheckpointError(f'articles: {e}') from e
  return articles[: count or len(articles)]


def load_tokenizer(directory: str) -> tokenizers.Tokenizer:
  """Loads the tokenizer of a checkpoint.

  Args:
    directory: The directory of the checkpoint.

  Raises:
    errors.CheckpointError: There is no tokenizer.
  """
  try:
    return tokenizer_lib.load(os.path.join(directory, 'tokenizer.json'))
  except ValueError as e:
    raise errors.CheckpointError(
      f'{e}. Copy the tokenizer to the directory of the checkpoint.'
    ) from e


def from_articles(
  articles: Sequence[dataset.Article],
  tokenizer: tokenizers.Tokenizer,
  max_length: int,
) -> Texts:
  """Returns articles in the benchmark's prompt, followed by their highlights.

  Args:
    articles: The articles.
    tokenizer: The tokenizer of the model.
    max_length: The maximum number of tokens of a sequence.
  """
  prompts = dataset.encode_prompts(articles, tokenizer, max_length)
  answers = tokenizer.encode_batch([article.output for article in articles])
  sequences = []
  for prompt, answer in zip(prompts, answers):
    tokens = np.concatenate([prompt, np.asarray(answer.ids, np.int32)])
    sequences.append((tokens[:max_length], len(prompt)))
  return from_sequences(sequences)


def from_texts(
  texts: Sequence[str], tokenizer: tokenizers.Tokenizer, max_length: int
) -> Texts:
  """Returns plain texts; every token but the first is to be predicted.

  Args:
    texts: The texts.
    tokenizer: The tokenizer of the model.
    max_length: The maximum number of tokens of a sequence.
  """
  return from_sequences(
    [
      (np.asarray(encoding.ids[:max_length], np.int32), 1)
      for encoding in tokenizer.encode_batch(list(texts))
    ]
  )


def from_sequences(sequences: Sequence[tuple[np.ndarray, int]]) -> Texts:
  """Makes batches of sequences [T] int32, each with its prompt length."""
  ordered = sorted(
    sequences, key=lambda pair: len(pair[0])
  )  # sorted() is stable.
  return Texts(
    tuple(
      _batch(ordered[i : i + _BATCH]) for i in range(0, len(ordered), _BATCH)
    )
  )


def _batch(sequences: Sequence[tuple[np.ndarray, int]]) -> Batch:
  longest = max(len(tokens) for tokens, _ in sequences)
  shape = len(sequences), -(-longest // _LENGTH_STEP) * _LENGTH_STEP
  batch = Batch(
    np.zeros(shape, np.int32), np.zeros(shape, bool), np.zeros(shape, bool)
  )
  for row, (tokens, prompt) in enumerate(sequences):
    batch.tokens[row, : len(tokens)] = tokens
    batch.real[row, : len(tokens)] = True
    batch.answers[row, max(prompt - 1, 0) : len(tokens) - 1] = True
  return batch
