"""Parses the prompts of both data services: text or token ids."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import special_tokens
from saxml_ext.common.telemetry import tracing
from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.services import calls
from saxml_ext.server.vocabulary import codec as codec_lib

Request: TypeAlias = (
  completion_pb2.CompleteRequest | completion_pb2.TokenizeRequest
)

# The limit of a text, in characters per token of the prompt limit. To tokenize
# a longer text would waste time.
_MOST_CHARACTERS_PER_TOKEN = 64
_MOST_CHARACTERS_AT_LEAST = 1 << 16


async def encode(
  model: servable_lib.Servable, text: str, start: bool = False
) -> np.ndarray:
  """Returns the ids of a text of Sax's LMService, [T] int32.

  Args:
    model: The model that reads the text.
    text: The text, or ids for a tokenized model.
    start: True to prepend the model's start id, unless the text begins with it.

  Raises:
    errors.InvalidArgument: The text is not valid.
    errors.ResourceExhausted: Too many texts are being tokenized.
  """
  check_size(text, model.settings)
  codec = model.codecs.input
  ids = await calls.prepare(model.settings.tokenized_input, codec.encode, text)
  return _with_start(ids, model.settings, codec) if start else ids


async def parse(
  model: servable_lib.Servable, request: completion_pb2.CompleteRequest
) -> np.ndarray:
  """Returns the prompt of a completion for the engine, [T] int32.

  Raises:
    errors.InvalidArgument: There is no prompt, the model has no tokenizer for
      it, or its length is out of the model's limits.
    errors.ResourceExhausted: Too many texts are being tokenized.
  """
  kind = request.WhichOneof('prompt')
  if kind is None:
    raise errors.InvalidArgument(
      'the request has no prompt. Set text, segments or token_ids.'
    )
  if kind == 'token_ids':
    # The length is checked before the ids become an array.
    _check_length(request.token_ids.ids, model.settings)
    return np.array(request.token_ids.ids, np.int32)
  ids = await tokenize(model, request)
  _check_length(ids, model.settings)
  return ids


async def tokenize(
  model: servable_lib.Servable, request: Request
) -> np.ndarray:
  """Returns the ids of a request's text, [T] int32.

  They begin with the model's start id, unless the request declines it.

  Raises:
    errors.InvalidArgument: The model has no tokenizer, or the text is too long.
    errors.ResourceExhausted: Too many texts are being tokenized.
  """
  words = model.codecs.words
  if words is None:
    raise errors.InvalidArgument(
      'this model has no tokenizer. Send token ids, or publish it with'
      ' VOCABULARY_PATH or a tokenizer.json beside its checkpoint.'
    )
  text, literal = text_and_literal(request)
  check_size(text, model.settings)
  with tracing.part('tokenize'):
    ids = await calls.prepare(False, words.encode_prompt, text, literal)
  if request.HasField('add_special_tokens') and not request.add_special_tokens:
    return ids
  return _with_start(ids, model.settings, words)


def text_and_literal(request: Request) -> tuple[str, list[special_tokens.Span]]:
  """Returns the text of a request and its literal spans."""
  if not request.HasField('segments'):
    return request.text, []
  literal = []
  end = 0
  for segment in request.segments.segments:
    start, end = end, end + len(segment.text)
    if segment.literal:
      literal.append((start, end))
  return ''.join(s.text for s in request.segments.segments), literal


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


def truncate(ids: np.ndarray, model: servable_lib.Servable) -> np.ndarray:
  """Applies the model's start id and length limit to ids of `encode`.

  Returns:
    The prompt for the engine, [N] int32, with N at most `max_prompt`.

  Raises:
    errors.InvalidArgument: The prompt is empty, or it is too long for a model
      that does not truncate prompts.
  """
  settings = model.settings
  has_start = settings.sos_id is not None
  if _has_start(ids, settings, model.codecs.input):
    ids = ids[1:]
  room = settings.engine.max_prompt - has_start
  if not has_start:
    _check_not_empty(ids)
  if len(ids) > room and settings.fail_on_truncation:
    raise errors.InvalidArgument(
      f'the prompt has {len(ids)} tokens, but this model takes at most {room}'
      ' (INPUT_SEQ_LEN). Shorten it.'
    )
  kept = ids[:room] if settings.keep_left else ids[max(len(ids) - room, 0) :]
  return _prepend(kept, settings)


def _check_length(
  ids: Sequence[int] | np.ndarray, settings: settings_lib.Settings
) -> None:
  _check_not_empty(ids)
  most = settings.engine.max_prompt
  if len(ids) > most:
    raise errors.InvalidArgument(
      f'the prompt has {len(ids)} tokens, but this model takes 1 to {most}'
      ' (INPUT_SEQ_LEN). Shorten it, or use a model with a higher limit.'
    )


def _check_not_empty(ids: Sequence[int] | np.ndarray) -> None:
  if not len(ids):
    raise errors.InvalidArgument('the prompt has 0 tokens. Send at least 1.')


def _with_start(
  ids: np.ndarray, settings: settings_lib.Settings, codec: codec_lib.Codec
) -> np.ndarray:
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
