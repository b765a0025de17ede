"""Raises ValueError for numbers with which no engine can be built."""

from collections.abc import Sequence
from typing import Any

from saxml_ext.engine import architecture

# The minimum of each field of `config.EngineConfig`. Fields may also be None if
# that is their default.
_LEAST = {
  'num_slots': 1,
  'max_prompt': 1,
  'max_new_tokens': 1,
  'max_stop_ids': 1,
  'num_beams': 1,
  'num_samples': 1,
  'tokens_per_beam': 1,
  'steps_per_call': 1,
  'exit_finished': 1,
  'suffix_block': 1,
  'prefill_chunk': 0,
  'prefill_interval': 1,
  'prefill_tokens': 0,
  'max_top_k': 0,
  'max_logprobs': 0,
  'max_context': 0,
}


def sizes(model: Any) -> None:
  """Checks the sizes of a ModelConfig."""
  if model.architecture.positions != architecture.ROTARY:
    if model.rotary_dim:
      raise ValueError(
        f'rotary_dim is {model.rotary_dim}, but must be 0 with'
        f' {model.architecture.positions} positions.'
      )
  elif model.rotary_dim % 2 or not 0 < model.rotary_dim <= model.head_dim:
    raise ValueError(
      f'rotary_dim is {model.rotary_dim}, but must be even and between 2 and'
      f' head_dim ({model.head_dim}).'
    )
  scaling = model.rotary_scaling
  if scaling and len(scaling.divisors) not in (0, model.rotary_dim // 2):
    raise ValueError(
      f'rotary_scaling has {len(scaling.divisors)} divisors, but must have'
      f' {model.rotary_dim // 2}, half of rotary_dim.'
    )
  sequential = model.architecture.residual == architecture.SEQUENTIAL
  if model.details.residual != 1 and not sequential:
    raise ValueError(
      f'the factor of the residual is {model.details.residual}, but must be 1'
      f' with the residual {model.architecture.residual!r}.'
    )
  if model.num_heads % model.kv_heads:
    raise ValueError(
      f'num_kv_heads is {model.num_kv_heads}, but must divide num_heads'
      f' ({model.num_heads}).'
    )


def numbers(config: Any) -> None:
  """Checks the numeric fields of an EngineConfig."""
  for name, least in _LEAST.items():
    value = getattr(config, name)
    if value is not None and value < least:
      raise ValueError(f'{name} is {value}, but must be at least {least}.')
  if not 0 <= config.min_new_tokens <= config.max_new_tokens:
    raise ValueError(
      f'min_new_tokens is {config.min_new_tokens}, but must be between 0 and'
      f' max_new_tokens ({config.max_new_tokens}).'
    )


def context(config: Any) -> None:
  """Checks the fields that an EngineConfig with max_context requires."""
  if not config.max_context:
    return
  if not config.max_prompt < config.max_context:
    raise ValueError(
      f'max_prompt is {config.max_prompt}, but must be below max_context'
      f' ({config.max_context}), to leave room for an answer.'
    )
  if config.max_new_tokens > config.max_context:
    raise ValueError(
      f'max_new_tokens is {config.max_new_tokens}, but must be at most'
      f' max_context ({config.max_context}).'
    )
  required = {
    'search': config.search == 'any',
    'embedding': config.embedding is None,
    'gradients': not config.gradients,
    'prefill_chunk': config.prefill_chunk > 0,
    'suffix_block': config.suffix_block >= config.max_new_tokens,
  }
  for name, is_right in required.items():
    if not is_right:
      raise ValueError(
        f'{name} is {getattr(config, name)!r}, which max_context'
        f' ({config.max_context}) does not support.'
      )


def packing(config: Any) -> None:
  """Checks the fields that an EngineConfig with prefill_tokens requires."""
  if not config.prefill_tokens:
    return
  for name, value, is_right in (
    ('prefill_chunk', config.prefill_chunk, not config.prefill_chunk),
    ('prompt_segments', config.segments, len(config.segments) == 1),
  ):
    if not is_right:
      raise ValueError(
        f'{name} is {value!r}, which prefill_tokens'
        f' ({config.prefill_tokens}) does not support.'
      )


def ascending(name: str, values: Sequence[int], last: int | None) -> None:
  """Checks a list of different positive numbers.

  Args:
    name: The name of the list.
    values: The numbers.
    last: The required last number, or None for any.
  """
  if not values or values[0] < 1 or list(values) != sorted(set(values)):
    raise ValueError(f'{name} is {values}, not positive and ascending.')
  if last is not None and values[-1] != last:
    raise ValueError(f'{name} ends in {values[-1]}, but must end in {last}.')
