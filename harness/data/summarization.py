"""The task of the GPT-J benchmark: news articles to be summarized."""

from collections.abc import Collection, Sequence
import dataclasses
import functools
import itertools

import numpy as np
import tokenizers

from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib


@dataclasses.dataclass(frozen=True)
class Source:
  """Where the articles come from, and how they become prompts.

  Attributes:
    dataset_path: evaluation file in the schema of cnn_eval.json.
    tokenizer_path: tokenizer.json of the model.
    max_input_length: tokens after which a prompt is cut.
    sample_count: articles to take from the front; 0 takes all.
  """

  dataset_path: str
  tokenizer_path: str
  max_input_length: int
  sample_count: int = 0

  def load(self) -> 'Summarization':
    """Reads the articles and the tokenizer.

    Raises:
      OSError, ValueError: one of them cannot be used.
    """
    return Summarization(
      dataset.load_articles(self.dataset_path, self.sample_count),
      tokenizer_lib.load(self.tokenizer_path),
      self.max_input_length,
    )


@dataclasses.dataclass(frozen=True)
class Summarization:
  """Articles in memory. An article's place is LoadGen's sample index.

  Attributes:
    articles: in the file's order.
    tokenizer: of the model.
    max_input_length: tokens after which a prompt is cut.
  """

  articles: tuple[dataset.Article, ...]
  tokenizer: tokenizers.Tokenizer
  max_input_length: int

  @property
  def highlights(self) -> list[str]:
    """The summaries that answers are scored against."""
    return [article.output for article in self.articles]

  @functools.cached_property
  def prompt_ids(self) -> list[np.ndarray]:
    """Token ids of each article's prompt, int32 [T]."""
    return dataset.encode_prompts(
      self.articles, self.tokenizer, self.max_input_length
    )

  @functools.cached_property
  def prompts(self) -> list[str]:
    """Each article's prompt as comma-separated token ids."""
    return [','.join(map(str, ids)) for ids in self.prompt_ids]


def end_ids(tokenizer: tokenizers.Tokenizer) -> frozenset[int]:
  """Ids of the special tokens; the first of them ends an answer.

  A model of the GPT-J benchmark knows one, which it also pads with.
  """
  return frozenset(
    token_id
    for token_id, token in tokenizer.get_added_tokens_decoder().items()
    if token.special
  )


def until_end(tokens: Sequence[int], ends: Collection[int]) -> tuple[int, ...]:
  """An answer up to its first end id: without that one and what follows it.

  Servers and the reference differ in what they append: nothing, one end id, or
  as many as make the answers of a batch equally long.
  """
  return tuple(itertools.takewhile(lambda token: token not in ends, tokens))
