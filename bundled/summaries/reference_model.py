"""Generates the reference's answers to many prompts, with a progress bar."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import console
from rich import progress
import transformers

from harness.data import summarization
from harness.systems.reference import causal_lm


def generate(
  model: transformers.PreTrainedModel,
  prompts: Sequence[Sequence[int]],
  label: str,
  search: Mapping[str, Any],
  batch_size: int = 1,
) -> list[list[int]]:
  """Answers prompts as the reference does.

  Args:
    model: The model that `causal_lm.load` returns.
    prompts: The token ids of each prompt.
    label: The label of the progress bar.
    search: The search, as in `causal_lm.answer`.
    batch_size: The number of prompts answered together, as in `causal_lm.answer`.

  Returns:
    The generated ids of each prompt, without the end of sequence.
  """
  answers: list[list[int]] = []
  ends = causal_lm.end_ids(model.config)
  for start in progress.track(
    range(0, len(prompts), batch_size),
    label,
    console=console.Console(stderr=True),
  ):
    rows = [list(row) for row in prompts[start : start + batch_size]]
    answers += (
      list(summarization.until_end(ids, ends))
      for ids in causal_lm.answer(model, rows, search)
    )
  return answers
