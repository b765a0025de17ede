"""Whether a model fits, asked before minutes are spent on reading it."""

from collections.abc import Mapping

import psutil
import torch
import transformers

_GIB = 2**30


class TooLarge(ValueError):
  """What is to be kept is larger than the memory that is free."""


def weights_bytes(config: transformers.GPTJConfig, dtype: torch.dtype) -> int:
  """Bytes of a model's weights."""
  with torch.device('meta'):
    model = transformers.GPTJForCausalLM(config)
  return sum(each.numel() for each in model.parameters()) * dtype.itemsize


def cache_bytes(
  config: transformers.GPTJConfig,
  dtype: torch.dtype,
  sequences: int,
  tokens: int,
) -> int:
  """Bytes of the keys and values of attention.

  Args:
    config: sizes of the model.
    dtype: of the cache.
    sequences: kept at a time: prompts of a batch times beams.
    tokens: of the longest sequence, prompt and answer.
  """
  per_token = 2 * config.n_layer * config.n_embd * dtype.itemsize
  return sequences * tokens * per_token


def check(parts: Mapping[str, int], device: torch.device) -> None:
  """Compares with what is free now.

  Args:
    parts: bytes by what they are of, such as "weights".
    device: whose memory is to hold them all.

  Raises:
    TooLarge: it cannot.
  """
  free = _free_bytes(device)
  needed = sum(parts.values())
  if needed <= free:
    return
  what = ' and '.join(f'{name} {_gib(size)}' for name, size in parts.items())
  raise TooLarge(
    f'the model needs {_gib(needed)} of memory on {device} ({what}), and'
    f' {_gib(free)} are free there; end what else uses it, take a machine with'
    ' more, or ask for less: --precision=bfloat16 halves what float32 takes, a'
    ' smaller --batch_size or --beam_size shrinks the cache'
  )


def _free_bytes(device: torch.device) -> int:
  if device.type == 'cuda':
    return torch.cuda.mem_get_info(device)[0]
  return psutil.virtual_memory().available


def _gib(size: int) -> str:
  return f'{size / _GIB:.1f} GiB'
