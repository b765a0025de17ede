"""What a user chooses of the reference: device, number format and beams."""

import os
import re

import torch

_DEVICE = re.compile(r'cpu|cuda(?::([0-9]+))?')

# The names of the reference's own option, and the shorter ones of CM.
PRECISIONS = {
  'float32': torch.float32,
  'bfloat16': torch.bfloat16,
  'float16': torch.float16,
  'fp32': torch.float32,
  'bf16': torch.bfloat16,
  'fp16': torch.float16,
}

_BEAM_VARIABLE = 'GPTJ_BEAM_SIZE'
_BEAMS = 4


def device(name: str) -> torch.device:
  """The device of a name: "cpu", "cuda" (the first GPU) or "cuda:1".

  Raises:
    ValueError: the name is another, or PyTorch sees no such device.
  """
  match = _DEVICE.fullmatch(name)
  if not match:
    raise ValueError(
      f'--device={name} is not known; write cpu, cuda or cuda:0 (any number)'
    )
  if name == 'cpu':
    return torch.device('cpu')
  index = int(match[1] or 0)
  count = torch.cuda.device_count() if torch.cuda.is_available() else 0
  if index >= count:
    seen = f'{count} CUDA devices' if count else 'no CUDA device'
    raise ValueError(
      f'--device={name}: PyTorch {torch.__version__} sees {seen} here; use'
      ' --device=cpu, or a machine with an NVIDIA GPU, its driver and a CUDA'
      ' build of PyTorch, see docs/systems.md'
    )
  return torch.device('cuda', index)


def beam_size(asked: int | None) -> int:
  """Beams of the search: as asked, else as the reference's variable says.

  Raises:
    ValueError: the variable is no number above 0.
  """
  if asked is not None:
    return asked
  text = os.environ.get(_BEAM_VARIABLE) or str(_BEAMS)
  if not re.fullmatch('[1-9][0-9]*', text):
    raise ValueError(
      f'the environment variable {_BEAM_VARIABLE} is {text!r}; set it to a'
      f' whole number from 1, such as {_BEAMS}, or unset it'
    )
  return int(text)
