"""Makes modified versions of the reference, and measures their divergence."""

from collections.abc import Iterator, Sequence
import copy
from typing import TypeAlias

import torch
from torch.nn import functional as F
import transformers

from harness.systems.reference import causal_lm

# Spread channels differ by a factor of up to 2**4.
_MAX_EXPONENT = 2

Model: TypeAlias = transformers.GPTJForCausalLM


def rounded(model: Model, bits: int) -> Model:
  """Returns a copy with all matrices rounded to `bits`, a scale per row."""
  model = copy.deepcopy(model)
  round_weights(model, bits)
  return model


def round_weights(model: torch.nn.Module, bits: int) -> None:
  """Rounds every matrix to `bits`, symmetrically, with a scale per row."""
  top = 2 ** (bits - 1) - 1
  with torch.no_grad():
    for weight in model.parameters():
      if weight.dim() == 2:
        scale = weight.abs().amax(dim=1, keepdim=True) / top
        weight.copy_((weight / scale).round() * scale)


def exact_gelu(model: Model) -> Model:
  """Returns a copy with the exact GELU instead of its tanh approximation."""
  model = copy.deepcopy(model)
  for block in model.transformer.h:
    block.mlp.act = torch.nn.GELU()
  return model


def spread(model: Model, seed: int = 0) -> Model:
  """Returns a copy with uneven channels, as in large models, and equal results.

  In large language models, some channels have activations that are many times
  larger than others. Rounding such channels to few bits is hard. Here, each
  channel between a layer norm, or the values of attention, and the matrices
  that read it is multiplied by a power of two. The matrices that read it are
  divided by the same factor. This is exact in floating point, so all bits of
  the logits stay the same.

  Args:
    model: The model, which stays unchanged.
    seed: The seed of the exponents, drawn uniformly from -_MAX_EXPONENT to
      _MAX_EXPONENT.
  """
  model = copy.deepcopy(model)
  generator = torch.Generator().manual_seed(seed)
  with torch.no_grad():
    for block in model.transformer.h:
      attention = block.attn
      projections = [attention.q_proj, attention.k_proj, attention.v_proj]
      _spread_norm(block.ln_1, [*projections, block.mlp.fc_in], generator)
      values = attention.v_proj.weight
      factors = _factors(values.shape[0], generator)
      values *= factors[:, None]
      attention.out_proj.weight /= factors
    _spread_norm(model.transformer.ln_f, [model.lm_head], generator)
  return model


def _spread_norm(
  norm: torch.nn.LayerNorm,
  readers: Sequence[torch.nn.Linear],
  generator: torch.Generator,
) -> None:
  factors = _factors(norm.weight.shape[0], generator)
  norm.weight *= factors
  norm.bias *= factors
  for reader in readers:
    reader.weight /= factors


def _factors(size: int, generator: torch.Generator) -> torch.Tensor:
  """Returns random powers of two, float32 [size]."""
  return 2.0 ** torch.randint(
    -_MAX_EXPONENT, _MAX_EXPONENT + 1, (size,), generator=generator
  )


@torch.inference_mode()
def divergence(
  model: Model,
  other: Model,
  prompts: Sequence[Sequence[int]],
  answers: Sequence[Sequence[int]],
) -> float:
  """Returns the mean KL divergence of next tokens, in nats, over all answers.

  Args:
    model: The model whose distribution is the true one.
    other: The model to compare with it.
    prompts: The token ids before each answer.
    answers: The token ids that both models read and predict in turn.
  """
  total, count = 0.0, 0
  padding = causal_lm.end_ids(model.config)[0]
  for ids, where in _batches(prompts, answers, padding):
    ours, theirs = (
      F.log_softmax(network(ids).logits[where], dim=-1)
      for network in (model, other)
    )
    total += (ours.exp() * (ours - theirs)).sum().item()
    count += len(ours)
  return total / count


def _batches(
  prompts, answers, pad: int, size: int = 16
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
  """Yields ids [B, T] and the positions [B, T] that predict an answer."""
  rows = sorted(
    ((list(p), list(a)) for p, a in zip(prompts, answers)),
    key=lambda row: len(row[0]) + len(row[1]),
  )
  for start in range(0, len(rows), size):
    batch = rows[start : start + size]
    width = max(len(prompt) + len(answer) for prompt, answer in batch)
    ids = torch.full((len(batch), width), pad)
    where = torch.zeros((len(batch), width), dtype=torch.bool)
    for i, (prompt, answer) in enumerate(batch):
      end = len(prompt) + len(answer)
      # The padding is at the end, where a causal model never reads.
      ids[i, :end] = torch.tensor(prompt + answer)
      where[i, len(prompt) - 1 : end - 1] = True
    yield ids, where
