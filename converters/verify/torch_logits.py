"""Logits of the reference implementation, transformers on PyTorch."""

import numpy as np
import torch
import transformers

from converters.quantize import sample_texts


@torch.inference_mode()
def answer_logits(
  base: str, dtype: str, texts: sample_texts.Texts, vocab_size: int
) -> np.ndarray:
  """Logits [places, vocab_size] as `logit_errors.answer_logits` gives.

  Computed in float32 with the whole model in memory.

  Args:
    base: Hugging Face directory; nothing in it is executed.
    dtype: type that the weights are rounded to before, as a conversion does.
    texts: to run.
    vocab_size: logits beyond are cut, as a conversion cuts padding.
  """
  model = transformers.AutoModelForCausalLM.from_pretrained(
    base, dtype=torch.float32, local_files_only=True
  ).eval()
  if dtype != 'float32':
    for parameter in model.parameters():
      parameter.copy_(parameter.to(getattr(torch, dtype)).float())
  logits = []
  for batch in texts.batches:
    # Padding is on the right, where no real token looks.
    output = model(torch.from_numpy(batch.tokens).long()).logits.numpy()
    logits.append(output[batch.answers][:, :vocab_size])
  return np.concatenate(logits)
