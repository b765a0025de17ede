"""The reference implementation's answers to many prompts, with a bar."""

from collections.abc import Sequence
from typing import Any

from rich import console
from rich import progress
import transformers

from harness.systems.reference import gptj


def generate(
  model: transformers.GPTJForCausalLM,
  prompts: Sequence[Sequence[int]],
  label: str,
  batch_size: int = 1,
  **changes: Any,
) -> list[list[int]]:
  """Answers prompts as the reference does.

  Args:
    model: what `gptj.load` returns.
    prompts: token ids of each.
    label: what the progress bar says.
    batch_size: prompts answered at a time, see `gptj.answer`.
    **changes: what differs from gptj.GENERATION.

  Returns:
    The generated ids of each prompt, end of sequence left out.
  """
  answers = []
  for start in progress.track(
    range(0, len(prompts), batch_size),
    label,
    console=console.Console(stderr=True),
  ):
    rows = [list(row) for row in prompts[start : start + batch_size]]
    answers += gptj.answer(model, rows, changes)
  return answers
