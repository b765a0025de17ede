"""How long prompts and answers are: what the estimates of samples/s depend on.

A distribution is a file, a histogram made from the calibration set by
`count_lengths.py`; never from the evaluation set, which the rules of MLPerf
Inference forbid to tune to. Where there is none, `ASSUMED` stands in.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
from typing import Any

import numpy as np

FORMAT = 1
PROMPT_LIMIT = 1919
OUTPUT_LIMITS = (30, 128)


@dataclasses.dataclass(frozen=True)
class Lengths:
  """Requests of a run.

  prompts, outputs [N] int: tokens of each request's prompt and answer. source:
  where they are from, in words.
  """

  prompts: np.ndarray
  outputs: np.ndarray
  source: str

  def __len__(self) -> int:
    return len(self.prompts)

  def decoded(self, steps: float) -> 'Lengths':
    """Returns the requests with the steps that they decode as their outputs.

    Args:
      steps: The decode steps per token of an answer. No request decodes more
        steps than the benchmark's limit, or than its answer is long.
    """
    most = np.maximum(self.outputs, OUTPUT_LIMITS[1])
    outputs = np.minimum(np.rint(self.outputs * steps), most).astype(int)
    return dataclasses.replace(self, outputs=outputs)


@dataclasses.dataclass(frozen=True)
class Assumed:
  """A parametric distribution that stands in for the calibration set's.

  Prompts are lognormal. The articles of CNN/DailyMail have 781 words on average
  (See et al., "Get To The Point", 2017); at 1.1 tokens a word and with the
  benchmark's instruction around them that is 893 tokens after cutting at 1,919,
  the mean of a lognormal with median 810 and sigma 0.5. Outputs are normal, cut
  to what the benchmark allows: LoadGen counts 69 tokens a sample, and 300 to
  311 characters a sample, as reference and submissions have them, are as many
  at 4.4 characters a token. Their spread is a guess.

  Attributes:
    median: of prompts, in tokens.
    sigma: of the logarithm of prompts.
    mean: of outputs, in tokens.
    deviation: of outputs, in tokens.
  """

  median: float = 810
  sigma: float = 0.5
  mean: float = 69.5
  deviation: float = 20

  def draw(self, count: int, seed: int = 0) -> Lengths:
    """`count` requests, always the same for a seed."""
    rng = np.random.default_rng(seed)
    prompts = self.median * np.exp(self.sigma * rng.standard_normal(count))
    outputs = self.mean + self.deviation * rng.standard_normal(count)
    return Lengths(
      np.clip(np.rint(prompts), 1, PROMPT_LIMIT).astype(int),
      np.clip(np.rint(outputs), *OUTPUT_LIMITS).astype(int),
      f'assumed, not counted: prompts lognormal (median {self.median:g}, sigma'
      f' {self.sigma:g}, cut at {PROMPT_LIMIT}), outputs normal'
      f' ({self.mean:g} +- {self.deviation:g}, {OUTPUT_LIMITS[0]} to'
      f' {OUTPUT_LIMITS[1]})',
    )


ASSUMED = Assumed()
# What the assumption brings in: each is drawn and predicted as well.
VARIATIONS: Mapping[str, Assumed] = {
  'prompts 10 % longer': dataclasses.replace(ASSUMED, median=891),
  'prompts 10 % shorter': dataclasses.replace(ASSUMED, median=729),
  'outputs spread 30 instead of 20': dataclasses.replace(ASSUMED, deviation=30),
  'outputs spread 10 instead of 20': dataclasses.replace(ASSUMED, deviation=10),
}


def bucket(length: int, buckets: Sequence[int]) -> int:
  """What a prompt is padded to: the smallest of the ascending buckets.

  Raises:
    ValueError: the prompt is longer than all of them.
  """
  for size in buckets:
    if size >= length:
      return size
  raise ValueError(
    f'a prompt has {length} tokens, and the programs take {buckets[-1]}; give'
    ' --lengths of shorter ones, or programs for longer ones.'
  )


def histogram(prompts: list[int], outputs: list[int], source: str) -> str:
  """A file of lengths, as `read` takes it: how many have which length."""
  if not prompts or not outputs:
    raise ValueError(
      f'there are {len(prompts)} prompts and {len(outputs)} outputs to count;'
      ' at least one of each is needed.'
    )
  record = {
    'format': FORMAT,
    'source': source,
    'prompts': _counted(prompts),
    'outputs': _counted(outputs),
  }
  return json.dumps(record, indent=1, sort_keys=True) + '\n'


def read(text: str, name: str, count: int, seed: int = 0) -> Lengths:
  """Draws requests from a file of `histogram`.

  Prompts and outputs are drawn apart: summaries of long articles are hardly
  longer than those of short ones.

  Args:
    text: the file.
    name: what to call it in an error.
    count: how many requests.
    seed: of the draw.

  Raises:
    ValueError: it is no such file.
  """
  try:
    record = json.loads(text)
    if record['format'] != FORMAT:
      raise ValueError(f'format {record["format"]} instead of {FORMAT}')
    rng = np.random.default_rng(seed)
    drawn = [
      _drawn(record[field], rng, count) for field in ('prompts', 'outputs')
    ]
    return Lengths(drawn[0], drawn[1], str(record['source']))
  except (ValueError, KeyError, TypeError, AttributeError) as e:
    raise ValueError(
      f'{name} is no file of lengths: {e}. Make one from the calibration set'
      ' with //saxml_ext/aot/report:count_lengths.'
    ) from e


def _counted(values: list[int]) -> dict[str, int]:
  found, counts = np.unique(values, return_counts=True)
  return {str(value): int(n) for value, n in zip(found, counts)}


def _drawn(counts: Any, rng: np.random.Generator, count: int) -> np.ndarray:
  values = np.array([int(value) for value in counts])
  weights = np.array([int(n) for n in counts.values()], float)
  if not len(values) or values.min() < 1 or weights.min() < 0:
    raise ValueError('lengths below 1 or counts below 0')
  return rng.choice(values, count, p=weights / weights.sum())
