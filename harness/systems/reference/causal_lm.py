"""Implements the references of GPT-J and Llama with transformers on PyTorch.

For GPT-J, it computes the same as language/gpt-j of
https://github.com/mlcommons/inference (backend_PyTorch.py at v4.1). The
reference of Llama uses vLLM; this one has the same settings. The model has one
number format. If it is not float32, autocast keeps the computation in it. The
search is that of transformers.
"""

from collections.abc import Mapping, Sequence
import os
from typing import Any

import psutil
import torch
import transformers

from harness.benchmarks import all as benchmarks
from saxml_ext.common import files

_GIB = 2**30


class TooLarge(ValueError):
  """Raised if the model needs more memory than is free."""


def weights_bytes(
  config: transformers.PreTrainedConfig, dtype: torch.dtype
) -> int:
  """Returns the size of a model's weights in bytes."""
  with torch.device('meta'):
    model = transformers.AutoModelForCausalLM.from_config(config)
  return (
    sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize
  )


def cache_bytes(
  config: transformers.PreTrainedConfig,
  dtype: torch.dtype,
  sequences: int,
  tokens: int,
) -> int:
  """Returns the size of the keys and values of attention in bytes.

  Args:
    config: The sizes of the model.
    dtype: The type of the cache.
    sequences: The number of sequences that are kept at a time: the prompts of a
      batch times the beams.
    tokens: The tokens of the longest sequence, with prompt and answer.
  """
  heads = config.num_attention_heads
  head_dim = config.hidden_size // heads
  # Llama may share keys and values between heads.
  kv_heads = getattr(config, 'num_key_value_heads', heads)
  per_token = 2 * config.num_hidden_layers * kv_heads * head_dim
  return sequences * tokens * per_token * dtype.itemsize


def check_memory(parts: Mapping[str, int], device: torch.device) -> None:
  """Checks that the required memory is free now.

  Args:
    parts: The sizes in bytes by the name of the part, such as "weights".
    device: The device whose memory must hold all parts.

  Raises:
    TooLarge: The parts need more memory than is free.
  """
  free = _free_bytes(device)
  needed = sum(parts.values())
  if needed <= free:
    return
  what = ' and '.join(f'{name} {_gib(size)}' for name, size in parts.items())
  raise TooLarge(
    f'the model needs {_gib(needed)} of memory on {device} ({what}), but only'
    f' {_gib(free)} are free. Stop other programs, use a machine with more'
    ' memory, or reduce the need: --precision=bfloat16 halves that of float32,'
    ' and a smaller --batch_size or --beam_size shrinks the cache'
  )


def _free_bytes(device: torch.device) -> int:
  if device.type == 'cuda':
    return torch.cuda.mem_get_info(device)[0]
  return psutil.virtual_memory().available


def _gib(size: int) -> str:
  gib = size / _GIB
  return f'{gib:.1f} GiB' if gib >= 1 else f'{gib:.3g} GiB'


def read_config(
  path: str, family: str | None = None
) -> transformers.PreTrainedConfig:
  """Reads the sizes of a checkpoint.

  Args:
    path: The directory with the files of a Hugging Face model.
    family: The expected model_type; None: that of any benchmark.

  Raises:
    ValueError: The directory does not contain such a model.
  """
  file_path = os.path.join(path, 'config.json')
  try:
    kind = files.read_json(file_path).get('model_type')
  except (OSError, ValueError, AttributeError) as error:
    raise ValueError(
      f'{path} is not a Hugging Face directory: {file_path} cannot be read'
      f' ({error}). Pass a directory with config.json, tokenizer.json and the'
      ' weights with --checkpoint'
    ) from error
  families = [family] if family else sorted(benchmarks.families())
  if kind not in families:
    raise ValueError(
      f'{path} contains a model of type {kind!r}, but the reference runs only'
      f' {" or ".join(families)} here. Pass the directory of such a model with'
      ' --checkpoint'
    )
  return transformers.AutoConfig.from_pretrained(path, local_files_only=True)


def longest_prompt(
  config: transformers.PreTrainedConfig, answer_tokens: int
) -> int:
  """Returns the longest prompt in tokens that leaves room for the answer."""
  return config.max_position_embeddings - answer_tokens


def end_ids(config: transformers.PreTrainedConfig) -> tuple[int, ...]:
  """Returns the ids that end an answer.

  Raises:
    ValueError: The model has none.
  """
  end = config.eos_token_id
  if end is None:
    raise ValueError(
      "the model's config.json has no eos_token_id, so the id that ends an"
      ' answer is unknown. Add it'
    )
  return tuple(end) if isinstance(end, list) else (end,)


def load(
  path: str,
  device: torch.device | str = 'cpu',
  dtype: torch.dtype = torch.float32,
) -> transformers.PreTrainedModel:
  """Loads a model, ready to generate.

  Args:
    path: The directory with the files of a Hugging Face model.
    device: The device that computes.
    dtype: The type of the weights.

  Raises:
    ValueError: The directory has no model of a benchmark, or weights are
      missing.
    OSError: The weights cannot be read.
    TooLarge: The weights do not fit into memory. This is checked before they
      are read.
  """
  config = read_config(path)
  # The weights are read into the host's memory for every device.
  size = weights_bytes(config, dtype)
  check_memory({'weights': size}, torch.device('cpu'))
  try:
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
      path, dtype=dtype, local_files_only=True, output_loading_info=True
    )
  except Exception as error:  # Each weight format has its own errors.
    raise ValueError(f'{path}: the weights cannot be read: {error}') from error
  # transformers initializes missing weights at random.
  lost = sorted([*info['missing_keys'], *info['mismatched_keys']], key=str)
  if lost:
    raise ValueError(
      f'{path} lacks {len(lost)} weights of its model, such as {lost[0]}. Copy'
      ' or download it again'
    )
  return model.to(device).eval()


@torch.inference_mode()
def answer(
  model: transformers.PreTrainedModel,
  prompts: Sequence[Sequence[int]],
  settings: Mapping[str, Any],
) -> list[list[int]]:
  """Answers prompts together, as the reference answers one.

  With several prompts, shorter ones are padded on the left and masked. Sums are
  then rounded in another order, so answers that depend on the last bits may
  differ.

  Args:
    model: The model that `load` returned.
    prompts: The token ids of each prompt.
    settings: The search, as arguments of transformers' `generate`.

  Returns:
    The generated ids of each prompt. End ids make them equally long.

  Raises:
    ValueError: The model cannot process a prompt.
  """
  for row in prompts:
    _check(row, model.config, settings['max_new_tokens'])
  ends = end_ids(model.config)
  width = max(map(len, prompts))
  ids = torch.full((len(prompts), width), ends[0])
  mask = torch.zeros_like(ids)
  for i, row in enumerate(prompts):
    ids[i, width - len(row) :] = torch.tensor(row)
    mask[i, width - len(row) :] = 1
  with torch.autocast(
    model.device.type, model.dtype, enabled=model.dtype != torch.float32
  ):
    output = model.generate(
      ids.to(model.device),
      attention_mask=mask.to(model.device),
      pad_token_id=ends[0],
      # generation_config.json of a chat model may ask for samples.
      do_sample=False,
      **settings,
    )
  return output[:, width:].tolist()


def _check(
  ids: Sequence[int], config: transformers.PreTrainedConfig, answer_tokens: int
) -> None:
  longest = longest_prompt(config, answer_tokens)
  if not 1 <= len(ids) <= longest:
    raise ValueError(
      f'a prompt has {len(ids)} tokens. With room for the answer, the model'
      f' accepts 1 to {longest}. Cut prompts with --max_input_length'
    )
  if max(ids) >= config.vocab_size:
    raise ValueError(
      f'a prompt has the id {max(ids)}, but the ids of the model are below'
      f' {config.vocab_size}. Pass the tokenizer.json of this model with'
      ' --tokenizer_path'
    )
