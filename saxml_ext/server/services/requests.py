"""Converts requests of Sax's LMService to requests of the engine.

Extra inputs are the parameters of a request that are sent with its text. A key
is accepted only if the serving params declare it (EXTRA_INPUTS). A key may be
given once, as a number, a list of numbers or a string.
"""

from collections.abc import Mapping
import math
from typing import Any

import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.common.telemetry import tracing
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import calls
from saxml_ext.server.vocabulary import codec as codec_lib

_MAX_STEPS = request_options.MAX_STEPS_KEY
_STOP_IDS = request_options.STOP_IDS_KEY
_OF_SAMPLES = [
  option
  for option in request_options.BY_EXTRA_INPUT.values()
  if option.search == 'samples'
]
# The limit of a text, in characters per token of the prompt limit. To tokenize
# a longer text would waste time.
_MOST_CHARACTERS_PER_TOKEN = 64
_MOST_CHARACTERS_AT_LEAST = 1 << 16


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
    ids = await encode(call.model, request.text)
  return request_lib.Request(
    tokens=finish(ids, settings, call.model.codecs.input),
    max_new_tokens=limit,
    min_new_tokens=min(
      settings.engine.min_new_tokens, limit or settings.engine.max_steps
    ),
    stream=call.method == scheduler.STREAM,
    **choices(extra, settings),
  )


async def encode(model: servable_lib.Servable, text: str) -> np.ndarray:
  """Returns the ids of a text, [T] int32.

  Raises:
    errors.InvalidArgument: The text is not valid.
    errors.ResourceExhausted: Too many texts are being tokenized.
  """
  check_size(text, model.settings)
  return await calls.prepare(
    model.settings.tokenized_input, model.codecs.input.encode, text
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
      value = merged[option.extra_input]
      given[option.engine] = _number(option, value)
  if given.get('seed') == request_options.NO_SEED:
    del given['seed']
  if 'top_k' in given and not settings.engine.any_top_k:
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
      f'extra input {key!r} is set twice. Send it once, as a number, a list or'
      ' a string.'
    )
  if key not in declared:
    known = ', '.join(sorted(declared)) or 'none'
    raise errors.InvalidArgument(
      f'extra input {key!r} is not declared by the model for this method.'
      f' Available: {known}'
    )


def check_size(text: str, settings: settings_lib.Settings) -> None:
  """Refuses extremely long texts before time is spent on them.

  Raises:
    errors.InvalidArgument: The text is far longer than the model's prompt
      limit.
  """
  most = (
    _MOST_CHARACTERS_PER_TOKEN * settings.engine.max_prompt
    + _MOST_CHARACTERS_AT_LEAST
  )
  if len(text) > most:
    raise errors.InvalidArgument(
      f'the text has {len(text)} characters, above the limit of {most} for a'
      f' model that reads {settings.engine.max_prompt} tokens. Shorten it.'
    )


def finish(
  ids: np.ndarray, settings: settings_lib.Settings, codec: codec_lib.Codec
) -> np.ndarray:
  """Applies the model's start id and length limit to a tokenized prompt.

  Args:
    ids: The prompt of the request, [T] int32.
    settings: The settings of the model.
    codec: The codec that made the ids.

  Returns:
    The prompt for the engine, [N] int32, with N at most `max_prompt`.

  Raises:
    errors.InvalidArgument: The prompt is empty, or it is too long for a model
      that does not truncate prompts.
  """
  has_start = settings.sos_id is not None
  if _has_start(ids, settings, codec):
    ids = ids[1:]
  room = settings.engine.max_prompt - has_start
  if not len(ids) and not has_start:
    raise errors.InvalidArgument('the prompt has 0 tokens. Send at least 1.')
  if len(ids) > room and settings.fail_on_truncation:
    raise errors.InvalidArgument(
      f'the prompt has {len(ids)} tokens, but this model takes at most {room}'
      ' (INPUT_SEQ_LEN). Shorten it.'
    )
  kept = ids[:room] if settings.keep_left else ids[max(len(ids) - room, 0) :]
  return _prepend(kept, settings)


def with_start(
  ids: np.ndarray, settings: settings_lib.Settings, codec: codec_lib.Codec
) -> np.ndarray:
  """Prepends the model's start id to the ids of a text, unless it is there.

  Args:
    ids: The ids, [T].
    settings: The settings of the model.
    codec: The codec that made the ids.
  """
  return ids if _has_start(ids, settings, codec) else _prepend(ids, settings)


def _has_start(
  ids: np.ndarray, settings: settings_lib.Settings, codec: codec_lib.Codec
) -> bool:
  """Returns True if a text begins with the model's start token itself."""
  start = settings.sos_id
  if start is None or not len(ids) or ids[0] != start:
    return False
  # In a model without a start token, an ordinary token may have the same id.
  return not codec.piece(start)


def _prepend(ids: np.ndarray, settings: settings_lib.Settings) -> np.ndarray:
  if settings.sos_id is None:
    return ids
  return np.concatenate([np.array([settings.sos_id], np.int32), ids])


def check_score(
  prefix: np.ndarray, suffix: np.ndarray, settings: settings_lib.Settings
) -> None:
  """Checks the lengths of a prefix and the suffix to score after it.

  Raises:
    errors.InvalidArgument: The suffix is empty, or one of them is too long.
      They are not truncated, because the score would be that of another text.
  """
  if not len(prefix):
    raise errors.InvalidArgument(
      'the prefix has 0 tokens. Send at least 1, so that the first token after'
      ' it has a probability.'
    )
  if not len(suffix):
    raise errors.InvalidArgument(
      'the suffix has 0 tokens. Send at least 1 to score.'
    )
  if settings.max_suffix:
    too_long = (
      len(prefix) > settings.engine.max_prompt
      or len(suffix) > settings.max_suffix
    )
    limits = (
      f'{settings.engine.max_prompt} (INPUT_SEQ_LEN) and {settings.max_suffix}'
      ' (SUFFIX_SEQ_LEN)'
    )
  else:
    too_long = len(prefix) + len(suffix) > settings.engine.max_prompt
    limits = f'{settings.engine.max_prompt} together (INPUT_SEQ_LEN)'
  if too_long:
    raise errors.InvalidArgument(
      f'prefix and suffix have {len(prefix)} and {len(suffix)} tokens, but'
      f' this model scores at most {limits}. Shorten them.'
    )
