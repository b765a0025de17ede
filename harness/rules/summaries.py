"""Defines the benchmarks that summarize news: their prompts and searches.

Source: language/gpt-j and language/llama3.1-8b of mlcommons/inference.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from harness.rules import rounds
from saxml_ext.evaluation import dataset


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """The rules of a benchmark that summarizes news.

  Attributes:
    title: The name of the model for messages.
    family: The model_type in the config.json of its checkpoints.
    template: The template of a prompt, with {input} for the article.
    max_input_length: The maximum number of tokens of a prompt.
    num_beams: The number of beams; 1 is greedy search.
    min_new_tokens: The minimum number of tokens of an answer.
    max_new_tokens: The maximum number of tokens of an answer.
    dtype: The type of the token ids in LoadGen's logs.
    logs_end: True if the logs contain the end id of an answer.
  """

  title: str
  family: str
  template: str
  max_input_length: int
  num_beams: int
  min_new_tokens: int
  max_new_tokens: int
  dtype: str = 'int64'
  logs_end: bool = False

  @property
  def generation(self) -> dict[str, Any]:
    """The search as arguments of transformers' `generate`."""
    # Greedy search has no early stopping, and transformers would warn about it.
    beams = {'early_stopping': True} if self.num_beams > 1 else {}
    return {
      'num_beams': self.num_beams,
      **beams,
      'max_new_tokens': self.max_new_tokens,
      'min_new_tokens': self.min_new_tokens,
    }

  @property
  def attributes(self) -> dict[str, Any]:
    """The search as attributes of serving params."""
    search: dict[str, Any] = {
      'USE_BEAM_SEARCH': self.num_beams > 1,
      **({'BEAM_SIZE': self.num_beams} if self.num_beams > 1 else {}),
      'MIN_DECODE_STEPS': self.min_new_tokens,
      'MAX_DECODE_STEPS': self.max_new_tokens,
    }
    if self.num_beams > 1:
      return search
    return search | {'NUM_SAMPLES': 1, 'TEMPERATURE': 0.0}


BENCHMARKS: Mapping[str, Benchmark] = {
  rounds.GPTJ: Benchmark(
    'GPT-J', 'gptj', dataset.PROMPT_TEMPLATE, 1919, 4, 30, 128
  ),
  # The reference cuts no prompt. The longest has about 2,540 tokens. vLLM, the
  # reference of Llama, returns and counts the end id.
  **dict.fromkeys(
    rounds.LLAMAS,
    Benchmark(
      *('Llama', 'llama', dataset.LLAMA_TEMPLATE, 2668, 1, 1, 128),
      dtype='int32',
      logs_end=True,
    ),
  ),
}


def of_family(family: str) -> Benchmark | None:
  """Returns the benchmark of a model_type; None if there is none."""
  found = (each for each in BENCHMARKS.values() if each.family == family)
  return next(found, None)
