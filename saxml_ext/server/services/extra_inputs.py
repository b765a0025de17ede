"""Extra inputs: the per-request parameters beside the text.

A key counts only if the serving params declare it (EXTRA_INPUTS), and a key
may be given once, as a number, a list of numbers or a string.
"""

from collections.abc import Mapping
import math
from typing import Any

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import common_pb2

_MAX_STEPS = request_options.MAX_STEPS_KEY
_STOP_IDS = request_options.STOP_IDS_KEY
_OF_SAMPLES = [
  option
  for option in request_options.BY_EXTRA_INPUT.values()
  if option.search == 'samples'
]


def merge(
  given: common_pb2.ExtraInputs, declared: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the declared keys with the request's values or the defaults.

  Raises:
    errors.InvalidArgument: a key is not declared or given twice, a value is
      not finite, or a list is not as long as its default.
  """
  merged = dict(declared)
  if not given.items and not given.tensors and not given.strings:
    return merged
  seen: set[str] = set()
  tensors = {}
  for key, tensor in given.tensors.items():
    # Before its numbers are looked at: there may be millions.
    _check_key(key, declared, seen)
    _check_length(key, len(tensor.values), declared[key])
    tensors[key] = list(tensor.values)
  for values in (given.items, tensors, given.strings):
    for key, value in values.items():
      _check_key(key, declared, seen)
      seen.add(key)
      _check_value(key, value)
      merged[key] = value
  return merged


def max_new_tokens(merged: Mapping[str, Any], limit: int) -> int:
  """Returns how many tokens the answer may have.

  Args:
    merged: of `merge`.
    limit: the model's own.

  Raises:
    errors.InvalidArgument: the request's value is no whole number from 1 to
      the limit.
  """
  value = merged.get(_MAX_STEPS)
  if value is None:
    return limit
  if not isinstance(value, (int, float)) or value != int(value) or value < 1:
    raise errors.InvalidArgument(
      f'{_MAX_STEPS} is {value!r}, but must be a whole number from 1 to {limit}'
    )
  if value > limit:
    raise errors.InvalidArgument(
      f'{_MAX_STEPS} is {int(value)}, above the MAX_DECODE_STEPS of this'
      f' model, {limit}'
    )
  return int(value)


def choices(
  merged: Mapping[str, Any], settings: settings_lib.Settings
) -> dict[str, Any]:
  """Returns how the tokens of an answer are chosen, as of `runner.Request`.

  A model without samples goes by the stop ids alone. A per_example_top_k above the model's
  TOP_K is lowered to it, as Sax does.

  Args:
    merged: of `merge`.
    settings: of the model.

  Raises:
    errors.InvalidArgument: a value is no number of its kind.
  """
  given: dict[str, Any] = {'stop_ids': settings.stop_ids}
  if _STOP_IDS in merged:
    option = request_options.BY_EXTRA_INPUT[_STOP_IDS]
    ids = [_number(option, i) for i in merged[_STOP_IDS]]
    if any(ids):
      given['stop_ids'] = tuple(i for i in ids if i)
  if not settings.engine.has_samples:
    return given
  for option in _OF_SAMPLES:
    if option.extra_input in merged:
      value = merged[option.extra_input]
      given[option.engine] = _number(option, value)
  if given.get('seed') == request_options.NO_SEED:
    del given['seed']
  if 'top_k' in given:
    given['top_k'] = min(given['top_k'], settings.engine.max_top_k)
  return given


def _number(option: request_options.Option, value: Any) -> Any:
  try:
    return option.of_number(value)
  except ValueError as e:
    raise errors.InvalidArgument(
      f'extra input {option.extra_input!r} {e}'
    ) from e


def _check_key(key: str, declared: Mapping[str, Any], seen: set[str]) -> None:
  if key in seen:
    raise errors.InvalidArgument(
      f'extra input {key!r} is given twice; send it once, as a number, a list or a string'
    )
  if key not in declared:
    known = ', '.join(sorted(declared)) or 'none'
    raise errors.InvalidArgument(
      f'extra input {key!r} is not one that this method of the model'
      f' declares: {known}'
    )


def _check_length(key: str, length: int, default: Any) -> None:
  if not isinstance(default, (list, tuple)) or len(default) != length:
    raise errors.InvalidArgument(
      f'extra input {key!r} is a list of {length} numbers, but its default is'
      f' {default!r}: give it the same form'
    )


def _check_value(key: str, value: Any) -> None:
  numbers = value if isinstance(value, list) else [value]
  for number in numbers:
    if isinstance(number, float) and not math.isfinite(number):
      raise errors.InvalidArgument(
        f'extra input {key!r} is {number}, but must be finite'
      )
