"""Gives a GPT-J the uneven channels of large models, without changing it.

In large language models some channels carry activations many times larger than
the others, which is what makes them hard to round to few bits. A small model
trained with Muon has none of that: it survives even 4-bit rounding, and so
would hide a wrong scale. Here each channel between a layer norm, or the values
of attention, and the matrices that read it is multiplied by a power of two, and
those matrices are divided by it. Powers of two are exact in floating point:
not one bit of the logits changes.
"""

from collections.abc import MutableMapping

import torch

# Channels differ by up to 2**4. Rounded to 8 bits per output row the model
# still answers as before, rounded to 4 bits it fails; `reference.py` prints it.
_MAX_EXPONENT = 2


def spread(state: MutableMapping[str, torch.Tensor], seed: int = 0) -> None:
  """Scales the channels of a GPT-J in place.

  Args:
    state: transformers' names -> tensors.
    seed: of the exponents, drawn evenly from -2 to 2.
  """
  generator = torch.Generator().manual_seed(seed)

  def factors(size: int) -> torch.Tensor:
    exponents = torch.randint(
        -_MAX_EXPONENT, _MAX_EXPONENT + 1, (size,), generator=generator
    )
    return 2.0**exponents

  def scale_norm(norm: str, readers: list[str]) -> None:
    factor = factors(state[f'{norm}.weight'].shape[0])
    state[f'{norm}.weight'] *= factor
    state[f'{norm}.bias'] *= factor
    for reader in readers:
      state[f'{reader}.weight'] /= factor

  layer = 0
  while f'transformer.h.{layer}.ln_1.weight' in state:
    block = f'transformer.h.{layer}'
    projections = [f'{block}.attn.{x}_proj' for x in 'qkv']
    scale_norm(f'{block}.ln_1', [*projections, f'{block}.mlp.fc_in'])
    values = state[f'{block}.attn.v_proj.weight']
    factor = factors(values.shape[0])
    values *= factor[:, None]
    state[f'{block}.attn.out_proj.weight'] /= factor
    layer += 1
  scale_norm('transformer.ln_f', ['lm_head'])
