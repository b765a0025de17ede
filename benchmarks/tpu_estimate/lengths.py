"""Draws lengths of prompts and answers for the estimates of samples/s.

A distribution is a file with a histogram. `count_lengths.py` creates it from
the calibration set. The rules of MLPerf Inference forbid tuning to the
evaluation set. Without a file, `ASSUMED` is used.
"""

import collections
from collections.abc import Sequence
import dataclasses
from typing import Annotated

import msgspec
import numpy as np

from saxml_ext.common import files

FORMAT = 1
PROMPT_LIMIT = 1919
OUTPUT_LIMITS = (30, 128)


@dataclasses.dataclass(frozen=True)
class Lengths:
  """The requests of a run.

  Attributes:
    prompts: The tokens of each request's prompt, [N] int.
    outputs: The tokens of each request's answer, [N] int.
    source: The origin of the lengths, as text.
  """

  prompts: np.ndarray
  outputs: np.ndarray
  source: str

  def __len__(self) -> int:
    return len(self.prompts)

  def decoded(self, steps: float) -> 'Lengths':
    """Returns the requests with their decode steps as their outputs.

    Args:
      steps: The decode steps per token of an answer. No request decodes more
        steps than the benchmark's limit, or than the length of its answer if
        that is longer.
    """
    most = np.maximum(self.outputs, OUTPUT_LIMITS[1])
    outputs = np.minimum(np.rint(self.outputs * steps), most).astype(int)
    return dataclasses.replace(self, outputs=outputs)


@dataclasses.dataclass(frozen=True)
class Assumed:
  """A parametric distribution for use without a calibration set.

  Prompts are lognormal. The articles of CNN/DailyMail have 781 words on average
  (See et al., "Get To The Point", 2017). With 1.1 tokens per word and the
  benchmark's instruction, that is 893 tokens after cutting at 1,919. A
  lognormal with median 810 and sigma 0.5 has this mean.

  Outputs are normal, cut to the benchmark's limits. LoadGen counts 69 tokens
  per sample. The reference and submissions have 300 to 311 characters per
  sample, which gives the same number at 4.4 characters per token. The deviation
  is a guess.

  Attributes:
    median: The median of prompts, in tokens.
    sigma: The deviation of the logarithm of prompts.
    mean: The mean of outputs, in tokens.
    deviation: The deviation of outputs, in tokens.
    prompt_limit: The length at which prompts are cut.
    output_limits: The least and the greatest length of outputs.
  """

  median: float = 810
  sigma: float = 0.5
  mean: float = 69.5
  deviation: float = 20
  prompt_limit: int = PROMPT_LIMIT
  output_limits: tuple[int, int] = OUTPUT_LIMITS

  def draw(self, count: int, seed: int = 0) -> Lengths:
    """Returns `count` requests. The same seed gives the same requests."""
    rng = np.random.default_rng(seed)
    prompts = self.median * np.exp(self.sigma * rng.standard_normal(count))
    outputs = self.mean + self.deviation * rng.standard_normal(count)
    least, most = self.output_limits
    return Lengths(
      np.clip(np.rint(prompts), 1, self.prompt_limit).astype(int),
      np.clip(np.rint(outputs), least, most).astype(int),
      f'assumed, not counted: prompts lognormal (median {self.median:g}, sigma'
      f' {self.sigma:g}, cut at {self.prompt_limit}), outputs normal'
      f' ({self.mean:g} +- {self.deviation:g}, {least} to {most})',
    )

  def variations(self) -> 'dict[str, Assumed]':
    """Returns other assumptions, with which the report repeats its estimate."""
    return {
      name: dataclasses.replace(self, **{key: factor * getattr(self, key)})
      for name, key, factor in _VARIATIONS
    }


# The name, the changed attribute of `Assumed`, and its factor.
_VARIATIONS = (
  ('prompts 10 % longer', 'median', 1.1),
  ('prompts 10 % shorter', 'median', 0.9),
  ('outputs spread by half more', 'deviation', 1.5),
  ('outputs spread by half less', 'deviation', 0.5),
)

ASSUMED = Assumed()
# The same articles for Llama 3.1 8B, as an estimate. No count with its
# tokenizer is available here. Its vocabulary is 2.5 times as large, so a text
# is assumed to have 8 % fewer tokens. The prompt's other words are about as
# many as GPT-J's. The longest prompt of the benchmark has about 2,540 tokens.
# The reference's answers have 8,167,644 characters in 13,368 samples, 611 each.
# At 4.9 characters per token, that is 125 of at most 128 tokens. A normal
# distribution that is cut at 128 has this mean.
LLAMA = Assumed(
  median=745,
  mean=135,
  deviation=15,
  prompt_limit=2540,
  output_limits=(1, 128),
)


def bucket(length: int, buckets: Sequence[int]) -> int:
  """Returns the smallest of the ascending buckets that holds a prompt.

  Raises:
    ValueError: The prompt is longer than all buckets.
  """
  for size in buckets:
    if size >= length:
      return size
  raise ValueError(
    f'a prompt has {length} tokens, but the programs take at most'
    f' {buckets[-1]}. Use shorter --lengths, or other programs.'
  )


_Counts = Annotated[
  dict[Annotated[int, msgspec.Meta(ge=1)], Annotated[int, msgspec.Meta(ge=0)]],
  msgspec.Meta(min_length=1),
]


@dataclasses.dataclass(frozen=True)
class Histogram:
  """A file of lengths.

  Attributes:
    format: The version of the format, FORMAT.
    source: The origin of the lengths, as text.
    prompts: The number of prompts of each length.
    outputs: The number of answers of each length.
  """

  format: int
  source: str
  prompts: _Counts
  outputs: _Counts


def histogram(prompts: list[int], outputs: list[int], source: str) -> str:
  """Returns the content of a file of lengths, which `read` accepts."""
  if not prompts or not outputs:
    raise ValueError(
      f'there are {len(prompts)} prompts and {len(outputs)} outputs, but at'
      ' least one of each is needed.'
    )
  counts = map(collections.Counter, (prompts, outputs))
  result = Histogram(FORMAT, source, *map(dict, counts))
  return files.encode_json(result, indent=1, sort_keys=True)


def read(text: str, name: str, count: int, seed: int = 0) -> Lengths:
  """Draws requests from a file of `histogram`.

  Prompts and outputs are drawn independently, because summaries of long
  articles are only slightly longer than those of short ones.

  Args:
    text: The content of the file.
    name: The name of the file, for errors.
    count: The number of requests.
    seed: The seed of the draw.

  Raises:
    ValueError: The text is not a file of lengths.
  """
  try:
    counted: Histogram = files.decode_json(text, Histogram, 'it')
    if counted.format != FORMAT:
      raise ValueError(f'format {counted.format} instead of {FORMAT}')
  except ValueError as e:
    raise ValueError(
      f'{name} is not a file of lengths: {e}. Make one from the calibration'
      ' set with //benchmarks/tpu_estimate:count_lengths.'
    ) from e
  rng = np.random.default_rng(seed)
  prompts, outputs = (
    _drawn(counts, rng, count) for counts in (counted.prompts, counted.outputs)
  )
  return Lengths(prompts, outputs, counted.source)


def _drawn(
  counts: dict[int, int], rng: np.random.Generator, count: int
) -> np.ndarray:
  weights = np.array(list(counts.values()), float)
  return rng.choice(list(counts), count, p=weights / weights.sum())
