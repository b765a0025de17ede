"""Loads the articles of a benchmark that summarizes news, and its prompts."""

from collections.abc import Collection, Sequence
import dataclasses
import functools
import itertools
import os

import msgspec
import numpy as np
import tokenizers

from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.data import samples as samples_lib
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib


@dataclasses.dataclass(frozen=True)
class Summarization:
  """Articles in memory. The position of an article is LoadGen's sample index.

  Attributes:
    articles: The articles in the file's order.
    tokenizer: The tokenizer of the model.
    max_input_length: The maximum number of tokens of a prompt.
    benchmark: The benchmark, with the template of the prompts.
  """

  articles: tuple[dataset.Article, ...]
  tokenizer: tokenizers.Tokenizer
  max_input_length: int
  benchmark: benchmark_lib.Benchmark

  @property
  def highlights(self) -> list[str]:
    """The summaries that answers are scored against."""
    return [article.output for article in self.articles]

  @functools.cached_property
  def prompt_ids(self) -> list[np.ndarray]:
    """The token ids of each article's prompt, int32 [T].

    Raises:
      ValueError: The benchmark cuts no prompts, and one is too long. Or the
        token ids of the file are for another tokenizer.
    """
    limit, rules = self.max_input_length, self.benchmark.prompt
    prompts = dataset.encode_prompts(
      self.articles,
      self.tokenizer,
      limit if rules.cuts else None,
      rules.template,
    )
    lengths = [len(ids) for ids in prompts]
    if max(lengths) > limit:
      raise ValueError(
        f'sample {lengths.index(max(lengths))} has a prompt of'
        f' {max(lengths)} tokens, the longest of'
        f' {sum(length > limit for length in lengths)} above the limit {limit}.'
        f' {self.benchmark.title} cuts no prompts. Choose serving params that take'
        ' them, raise --max_input_length, or lower --sample_count'
      )
    return prompts

  @functools.cached_property
  def prompts(self) -> list[str]:
    """The prompt of each article as comma-separated token ids."""
    return [','.join(map(str, ids)) for ids in self.prompt_ids]


def load(samples: samples_lib.Samples) -> Summarization:
  """Reads the articles and the tokenizer.

  Prompts of more than `max_input_length` tokens are cut for GPT-J, and refused
  for Llama.

  Raises:
    OSError, ValueError: A file cannot be used, or a setting is missing.
  """
  tokenizer_path, longest = samples.tokenizer_path, samples.max_input_length
  if not (tokenizer_path and longest):
    raise ValueError(
      'The model is unknown. Pass --tokenizer_path and --max_input_length.'
    )
  rules = benchmarks.get(samples.benchmark)
  path = samples.dataset_path or rules.bundle.dataset
  articles = dataset.load_articles(path, samples.sample_count)
  if rules.prompt.cuts and articles[0].tok_input is not None:
    raise ValueError(
      f'{path} has tok_input, the token ids of a Llama, but the model is a'
      f' {rules.title}. Pass a file without tok_input'
    )
  tokenizer = tokenizer_lib.load(tokenizer_path)
  if rules.logs_end and not end_ids(tokenizer):
    raise ValueError(
      f'{tokenizer_path} has no special tokens, so the id that ends an answer'
      ' is unknown. Pass the tokenizer.json of the model with --tokenizer_path.'
    )
  task = Summarization(articles, tokenizer, longest, rules)
  if not rules.prompt.cuts:
    _ = task.prompt_ids  # Reports prompts that cannot be used.
  return task


def load_beside(
  model_dir: str, longest: int, usual: int, samples: samples_lib.Samples
) -> Summarization:
  """Reads the articles, and by default the tokenizer of a model.

  Args:
    model_dir: The directory of the model's tokenizer.json.
    longest: The maximum number of prompt tokens that the model takes.
    usual: The number of tokens after which prompts are cut by default.
    samples: The samples.

  Raises:
    OSError, ValueError: A file cannot be used, or a prompt would be too long.
  """
  chosen = samples.max_input_length
  if chosen is not None and chosen > longest:
    raise ValueError(
      f'--max_input_length={chosen} is above the limit {longest},'
      ' the longest prompt that leaves room for the answer. Lower it.'
    )
  tokenizer_path = os.path.join(model_dir, 'tokenizer.json')
  return load(
    msgspec.structs.replace(
      samples,
      tokenizer_path=samples.tokenizer_path or tokenizer_path,
      max_input_length=chosen or usual,
    )
  )


def end_ids(tokenizer: tokenizers.Tokenizer) -> frozenset[int]:
  """Returns the ids of the special tokens; the first of them ends an answer.

  A GPT-J has one special token, which is also its padding. A Llama has several,
  and at least two of them end an answer.
  """
  return frozenset(
    token_id
    for token_id, token in tokenizer.get_added_tokens_decoder().items()
    if token.special
  )


def until_end(tokens: Sequence[int], ends: Collection[int]) -> tuple[int, ...]:
  """Returns an answer up to its first end id, without that id.

  Servers and the reference append different numbers of end ids: none, one, or
  as many as make the answers of a batch equally long.
  """
  return tuple(itertools.takewhile(lambda token: token not in ends, tokens))


def logged(
  tokens: Sequence[int],
  ends: Collection[int],
  benchmark: benchmark_lib.Benchmark,
) -> np.ndarray:
  """Returns an answer as LoadGen logs it, [T].

  Args:
    tokens: The generated ids, with any number of end ids.
    ends: The ids that end an answer.
    benchmark: The benchmark. It decides the type of the ids, and whether the
      first end id belongs to the answer.
  """
  length = len(until_end(tokens, ends)) + benchmark.logs_end
  return np.array(tokens[:length], benchmark.dtype)
