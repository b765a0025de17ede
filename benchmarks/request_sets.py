"""Generates the requests of a run: prompts, and lengths of the answers."""

import itertools

import numpy as np
import tokenizers

from benchmarks import workload
from saxml_ext.evaluation import dataset

# The answer lengths of CNN/DailyMail in the MLPerf GPT-J benchmark: 30 to 128
# tokens, 69 on average.
MIN_OUTPUT, MEAN_OUTPUT, MAX_OUTPUT = 30, 69, 128
# The ratio of the longest prompt of that set to the mean, 1,919 / 893.
_LONGEST = 1919 / 893
# The sigma of the lognormal distribution of the prompt lengths.
_SIGMA = 0.45
_LONGEST_ARTICLE = 512


def fixed(
  count: int, prompt: int, new_tokens: int, vocab: int, seed: int = 0
) -> tuple[workload.Request, ...]:
  """Returns random prompts of one length, with answers of one length."""
  rng = np.random.default_rng(seed)
  return tuple(
    workload.Request(_tokens(rng, prompt, vocab), new_tokens, new_tokens)
    for _ in range(count)
  )


def ragged(
  count: int, prompt: int, vocab: int, seed: int = 0
) -> tuple[workload.Request, ...]:
  """Returns random prompts and answer lengths, both of varied length.

  Prompt lengths are lognormal with mean `prompt`, limited to the range from an
  eighth to 2.15 times the mean. Answer lengths are 30 + 98 * Beta(2, b), with
  mean 69. A smaller set is the beginning of a larger one.
  """
  rng = np.random.default_rng(seed)
  span = MAX_OUTPUT - MIN_OUTPUT
  share = (MEAN_OUTPUT - MIN_OUTPUT) / span
  beta = 2 * (1 - share) / share
  result = []
  for _ in range(count):
    length = prompt * rng.lognormal(-(_SIGMA**2) / 2, _SIGMA)
    length = int(np.clip(length, max(1, prompt // 8), prompt * _LONGEST))
    output = MIN_OUTPUT + int(round(span * rng.beta(2, beta)))
    result.append(workload.Request(_tokens(rng, length, vocab), output, output))
  return tuple(result)


def bundled(
  count: int, articles: str, tokenizer: str
) -> tuple[workload.Request, ...]:
  """Returns the bundled articles, repeated if `count` exceeds their number.

  The model ends its own answers after 30 to 128 tokens.

  Args:
    count: The number of requests.
    articles: The path of eval.json.
    tokenizer: The path of tokenizer.json.
  """
  encoder = tokenizers.Tokenizer.from_file(tokenizer)
  texts = [a.prompt for a in dataset.load_articles(articles)[:count]]
  prompts = [e.ids[-_LONGEST_ARTICLE:] for e in encoder.encode_batch(texts)]
  return tuple(
    workload.Request(tuple(prompt), MIN_OUTPUT, MAX_OUTPUT)
    for prompt in itertools.islice(itertools.cycle(prompts), count)
  )


def _tokens(
  rng: np.random.Generator, length: int, vocab: int
) -> tuple[int, ...]:
  """Draws tokens except 0 and the last one, which ends a sequence."""
  return tuple(rng.integers(1, vocab - 1, length).tolist())
