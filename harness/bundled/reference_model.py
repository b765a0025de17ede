"""The reference implementation: transformers' GPT-J, the benchmark's search."""

from collections.abc import Sequence
from typing import Any

from rich import console
from rich import progress
import torch
import transformers

# https://github.com/mlcommons/inference, language/gpt-j, gen_kwargs.
GENERATION = {
  'num_beams': 4,
  'early_stopping': True,
  'max_new_tokens': 128,
  'min_new_tokens': 30,
}


def load(path: str) -> transformers.GPTJForCausalLM:
  """The model in float32, ready to generate."""
  return transformers.GPTJForCausalLM.from_pretrained(
    path, dtype=torch.float32
  ).eval()


@torch.inference_mode()
def generate(
  model: transformers.GPTJForCausalLM,
  prompts: Sequence[Sequence[int]],
  label: str,
  batch_size: int = 1,
  **changes: Any,
) -> list[list[int]]:
  """Answers prompts as the reference does.

  Args:
    model: what `load` returns.
    prompts: token ids of each.
    label: what the progress bar says.
    batch_size: prompts answered at a time. With more than one, shorter prompts
      are padded on the left and sums are rounded in another order, so that
      answers which hang on the last bits may differ.
    **changes: what differs from GENERATION.

  Returns:
    The generated ids of each prompt, end of sequence left out.
  """
  end = model.config.eos_token_id
  answers = []
  for start in progress.track(
    range(0, len(prompts), batch_size),
    label,
    console=console.Console(stderr=True),
  ):
    rows = [list(row) for row in prompts[start : start + batch_size]]
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), end)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
      ids[i, width - len(row) :] = torch.tensor(row)
      mask[i, width - len(row) :] = 1
    output = model.generate(
      ids, attention_mask=mask, pad_token_id=end, **{**GENERATION, **changes}
    )
    for answer in output[:, width:].tolist():
      answers.append(answer[: answer.index(end)] if end in answer else answer)
  return answers
