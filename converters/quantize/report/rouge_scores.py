"""Scores a checkpoint's own summaries with ROUGE, like the harness does."""

from collections.abc import Sequence
import dataclasses

import numpy as np
import tokenizers

from converters.quantize import models
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge

# The settings of the benchmark, see `harness`.
_NEW_TOKENS = (30, 128)
_BEAMS = 4
_SLOTS = 32


@dataclasses.dataclass(frozen=True)
class Summaries:
  """The answers of a model and their scores.

  Attributes:
    scores: The ROUGE of all answers.
    tokens: The token ids of each answer.
  """

  scores: rouge.Scores
  tokens: tuple[tuple[int, ...], ...]

  def num_same(self, other: 'Summaries') -> int:
    """Returns the number of answers that equal the other's, token for token."""
    return sum(a == b for a, b in zip(self.tokens, other.tokens))


def summarize(
  model: models.Model,
  quantization: str | None,
  articles: Sequence[dataset.Article],
  tokenizer: tokenizers.Tokenizer,
) -> Summaries:
  """Summarizes articles with the whole model in memory, and scores the results.

  Args:
    model: The model, in float or int8.
    quantization: The way to run the model, as in `weights.from_pax`.
    articles: The articles with their highlights.
    tokenizer: The tokenizer of the model.
  """
  limit = model.max_positions - _NEW_TOKENS[1]
  prompts = dataset.encode_prompts(articles, tokenizer, limit)
  weights = weights_lib.from_pax(
    {name: model.reader.read(name) for name in model.reader.specs},
    model.config,
    quantization=quantization,
    quantize_head=False,  # An int8 head on disk is used anyway.
  )
  engine = config_lib.EngineConfig(
    eos_id=model.end_ids[0],
    pad_id=model.end_ids[0],
    max_stop_ids=len(model.end_ids),
    num_slots=min(_SLOTS, len(prompts)),
    max_prompt=max(map(len, prompts)),
    min_new_tokens=_NEW_TOKENS[0],
    max_new_tokens=_NEW_TOKENS[1],
    num_beams=_BEAMS,
  )
  runner = runner_lib.Runner(weights, model.config, engine)
  answers = _generate(runner, prompts, model.end_ids)
  highlights = [article.output for article in articles]
  return Summaries(
    rouge.score_tokens(answers, highlights, tokenizer),
    tuple(tuple(tokens) for tokens in answers.values()),
  )


def _generate(
  runner: runner_lib.Runner,
  prompts: Sequence[np.ndarray],
  end_ids: tuple[int, ...],
) -> dict[int, list[int]]:
  """Returns the best hypothesis of each prompt by index."""
  # The longest prompts come first. Prompts of similar length need a similar
  # number of steps, so they are decoded together.
  waiting = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
  holder: dict[int, int] = {}
  answers: dict[int, list[int]] = {}
  while waiting or holder:
    free = [slot for slot in range(runner.num_slots) if slot not in holder]
    batch = dict(zip(free, waiting))
    del waiting[: len(batch)]
    holder |= batch
    runner.prefill_and_insert(
      {
        slot: request_lib.Request(prompts[i], stop_ids=end_ids)
        for slot, i in batch.items()
      }
    )
    for slot, result in runner.step().items():
      answers[holder.pop(slot)] = result.hypotheses[0].tokens.tolist()
  return dict(sorted(answers.items()))
