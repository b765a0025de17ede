"""Converts requests of Sax's LMService to requests of the engine.

Extra inputs are the parameters of a request that are sent with its text. A key
is accepted only if the serving params declare it (EXTRA_INPUTS). A key may be
given once, as a number, a list of numbers or a string.
"""

from collections.abc import Mapping
import math
from typing import Any

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.common.telemetry import tracing
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import calls
from saxml_ext.server.services import prompts

_MAX_STEPS = request_options.MAX_STEPS_KEY
_STOP_IDS = request_options.STOP_IDS_KEY
_OF_SAMPLES = [
  option
  for option in request_options.BY_EXTRA_INPUT.values()
  if option.search == 'samples'
]


async def generation(
  call: calls.Call, request: lm_pb2.GenerateRequest
) -> request_lib.Request:
  """Returns the engine's request for a call of Generate, streamed or not.

  Raises:
    errors.InvalidArgument: An extra input or the prompt is not valid.
    errors.ResourceExhausted: The model has no room for another request.
  """
  settings = call.settings
  extra = merge(request.extra_inputs, settings.extra_inputs[call.method])
  limit = max_new_tokens(extra, settings.engine)
  call.check_admission(scheduler.GENERATE)
  with tracing.part('tokenize'):
    ids = await prompts.encode(call.model, request.text)
  return request_lib.Request(
    tokens=prompts.truncate(ids, call.model),
    max_new_tokens=limit,
    min_new_tokens=min(
      settings.engine.min_new_tokens, limit or settings.engine.max_steps
    ),
    stream=call.method == scheduler.STREAM,
    **choices(extra, settings),
  )


def merge(
  given: common_pb2.ExtraInputs, declared: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the declared keys with the request's values or the defaults.

  Raises:
    errors.InvalidArgument: A key is not declared or is given twice, a value is
      not finite, or a list and its default differ in length.
  """
  merged = dict(declared)
  if not given.items and not given.tensors and not given.strings:
    return merged
  seen: set[str] = set()
  tensors = {}
  for key, tensor in given.tensors.items():
    # The key is checked before the values, because there may be millions of
    # them.
    _check_key(key, declared, seen)
    default = declared[key]
    length = len(default) if isinstance(default, (list, tuple)) else -1
    if len(tensor.values) != length:
      raise errors.InvalidArgument(
        f'extra input {key!r} is a list of {len(tensor.values)} numbers, but'
        f' its default is {default!r}. Send a value of the same form.'
      )
    tensors[key] = list(tensor.values)
  for values in (given.items, tensors, given.strings):
    for key, value in values.items():
      _check_key(key, declared, seen)
      seen.add(key)
      for number in value if isinstance(value, list) else [value]:
        if isinstance(number, float) and not math.isfinite(number):
          raise errors.InvalidArgument(
            f'extra input {key!r} is {number}, but must be finite'
          )
      merged[key] = value
  return merged


def max_new_tokens(
  merged: Mapping[str, Any], engine: config_lib.EngineConfig
) -> int | None:
  """Returns the maximum number of tokens of the answer.

  With max_context, None stands for all that the prompt leaves, and the engine
  lowers a larger number to that.

  Args:
    merged: The extra inputs that `merge` returned.
    engine: The configuration with the model's own limits.

  Raises:
    errors.InvalidArgument: The request's value is not an integer from 1 to the
      limit.
  """
  value, limit = merged.get(_MAX_STEPS), engine.max_steps
  if value is None:
    return None if engine.max_context else limit
  if not isinstance(value, (int, float)) or value != int(value) or value < 1:
    raise errors.InvalidArgument(
      f'{_MAX_STEPS} is {value!r}, but must be a whole number from 1 to {limit}'
    )
  if value > limit and not engine.max_context:
    raise errors.InvalidArgument(
      f'{_MAX_STEPS} is {int(value)}, above the limit of this model, {limit}'
      ' (MAX_DECODE_STEPS)'
    )
  return int(value)


def choices(
  merged: Mapping[str, Any], settings: settings_lib.Settings
) -> dict[str, Any]:
  """Returns the fields of `Request` that choose the tokens of an answer.

  A model without samples uses only the stop ids. If TOP_K is a limit, a larger
  per_example_top_k is lowered to it, as in Sax.

  Args:
    merged: The extra inputs that `merge` returned.
    settings: The settings of the model.

  Raises:
    errors.InvalidArgument: A value is not a number of the required kind.
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
      given[option.engine] = _number(option, merged[option.extra_input])
  if given.get('seed') == request_options.NO_SEED:
    del given['seed']
  if 'top_k' in given and not settings.engine.any_top_k:
    given['top_k'] = min(given['top_k'], settings.engine.max_top_k)
  return given


def _number(option: request_options.Option, value: Any) -> Any:
  try:
    return option.convert(value)
  except ValueError as e:
    raise errors.InvalidArgument(
      f'extra input {option.extra_input!r} {e}'
    ) from e


def _check_key(key: str, declared: Mapping[str, Any], seen: set[str]) -> None:
  if key in seen:
    raise errors.InvalidArgument(
      f'extra input {key!r} is set twice. Send it once, as a number, a list or'
      ' a string.'
    )
  if key not in declared:
    known = ', '.join(sorted(declared)) or 'none'
    raise errors.InvalidArgument(
      f'extra input {key!r} is not declared by the model for this method.'
      f' Available: {known}'
    )
