"""Converts a completion request to the engine's request; checks its limits."""

from collections.abc import Sequence
import dataclasses
from typing import Any, TypeAlias

import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.engine import request as request_lib
from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.services import prompts
from saxml_ext.server.services import requests

_Request: TypeAlias = completion_pb2.CompleteRequest

# The fields that the engine's request has under the same name.
_PLAIN = [
  name
  for name, option in request_options.BY_COMPLETION.items()
  if name == option.engine and name not in ('early_stopping', 'stream')
]

# The number of ids before an answer that can affect its text.
_CONTEXT = 4
_EARLY_STOPPING = dict(enumerate(request_options.EARLY_STOPPING))


@dataclasses.dataclass(frozen=True)
class ParsedRequest:
  """A client's request, with the checks that the engine does not make.

  Attributes:
    query: The request for the engine.
    sampled: True if the answers are samples; otherwise they are beams.
    n: The number of answers.
    context: The ids that the text of an answer continues.
    echo: The text before each answer, which is the prompt or ''.
    stop_ids: The tokens that end an answer in the engine.
    watched_ids: The other tokens that end an answer, because the engine's list
      is full. Like the others, they apply after min_tokens.
    stop_texts: The stop texts; an answer ends before the first one that occurs.
    stream: True if the answer is sent while it grows.
    priority: The priority; requests with a lower number are served first.
  """

  query: request_lib.Request
  sampled: bool
  n: int
  context: Sequence[int]
  echo: str
  stop_ids: frozenset[int]
  watched_ids: frozenset[int]
  stop_texts: tuple[str, ...]
  stream: bool
  priority: int


async def parse(
  model: servable_lib.Servable, request: _Request, client: str
) -> ParsedRequest:
  """Checks a request and tokenizes its prompt.

  Args:
    model: The model that answers.
    request: The request of the client.
    client: The name of the caller.

  Raises:
    errors.InvalidArgument: The model does not accept the value of a field.
    errors.ResourceExhausted: The model has no room for another request.
  """
  _check_stop_texts(model, request)
  most = request_options.MOST_PRIORITY
  _check('priority', request.priority, -most, most, 'lower numbers first')
  model.scheduler.check_admission(scheduler.GENERATE, client)
  tokens = await prompts.parse(model, request)
  query = _query(model.settings, request, tokens)
  ends = _stop_ids(model, request, query)
  fit = ends[: model.settings.engine.max_stop_ids]
  sampled = not request_lib.settle(
    dataclasses.replace(query, stop_ids=fit), model.settings.engine
  ).beam_search
  if not sampled:
    _check_beams(request)
  elif request.HasField('fallback_seed') and not request.HasField('seed'):
    query = dataclasses.replace(query, seed=request.fallback_seed)
  n = request.n if request.HasField('n') else 1
  watched = ends[len(fit) :] if sampled else ()
  stops = tuple(request.stop)
  return ParsedRequest(
    query=dataclasses.replace(
      query,
      **_rows(n, sampled, query, model.settings),
      # The engine refuses stop ids above its limit for beams, with a message.
      stop_ids=fit if sampled else ends,
      stream=request.stream or (sampled and bool(stops or watched)),
    ),
    sampled=sampled,
    n=n,
    **_beginning(model, request, tokens.tolist()),
    stop_ids=frozenset(fit),
    watched_ids=frozenset(watched),
    stop_texts=stops,
    stream=request.stream,
    priority=request.priority,
  )


def _beginning(
  model: servable_lib.Servable, request: _Request, tokens: Sequence[int]
) -> dict[str, Any]:
  """Returns the context of the answers and the text before them."""
  words = model.codecs.words
  if words is None:
    # Without a tokenizer, ids are separated by commas.
    echoed = tokens if request.echo else []
    return {'context': echoed, 'echo': model.codecs.output.decode(echoed)}
  context: list[int] = []
  for i in reversed(tokens):
    # Special tokens have no text. The context begins with a whole character.
    if piece := words.piece(i):
      context.insert(0, i)
      if len(context) >= _CONTEXT and not 0x80 <= piece[0] < 0xC0:
        break
  if not request.echo:
    echo = ''
  elif request.WhichOneof('prompt') == 'token_ids':
    echo = words.decode(tokens, special=True)
  else:
    echo, _ = prompts.text_and_literal(request)
  return {'context': context, 'echo': echo}


def _query(
  settings: settings_lib.Settings, request: _Request, tokens: np.ndarray
) -> request_lib.Request:
  """Returns the engine's request, before rows and stop ids are added."""
  defaults = settings.extra_inputs[scheduler.GENERATE]
  chosen = requests.choices(defaults, settings)
  limit = requests.max_new_tokens(defaults, settings.engine)
  if request.HasField('max_tokens'):
    limit = request.max_tokens
    most = settings.engine.max_steps
    if settings.engine.max_context:
      # The engine lowers it to what the prompt leaves.
      most = max(most, limit)
    _check('max_tokens', limit, 1, most, 'the MAX_DECODE_STEPS of this model')
  most = settings.engine.max_steps if limit is None else limit
  least = min(settings.engine.min_new_tokens, most)
  if request.HasField('min_tokens'):
    least = request.min_tokens
    _check('min_tokens', least, 0, most, 'the max_tokens of the request')
  for name in _PLAIN:
    if request.HasField(name):
      chosen[name] = getattr(request, name)
  return request_lib.Request(
    **{
      **chosen,
      'tokens': tokens,
      'max_new_tokens': limit,
      'min_new_tokens': least,
      'early_stopping': _EARLY_STOPPING.get(request.early_stopping),
      'beam_search': _beam_search(request, settings),
    }
  )


def _beam_search(
  request: _Request, settings: settings_lib.Settings
) -> bool | None:
  """Returns True for beam search, or None for the model's default."""
  if request.HasField('use_beam_search'):
    return request.use_beam_search
  if settings.engine.has_samples and _sample_fields(request):
    return False
  return None


def _sample_fields(request: _Request) -> list[str]:
  """Returns the set fields that affect samples but not beams.

  Beam search only compares likelihoods.
  """
  return [
    name
    for name, neutral in request_options.OF_SAMPLES.items()
    if request.HasField(name) and getattr(request, name) != neutral
  ]


def _check_beams(request: _Request) -> None:
  for name in _sample_fields(request):
    raise errors.InvalidArgument(
      f'{name} is {getattr(request, name)}, but beam search, which answers'
      ' this request, has no such option. Leave it out or set use_beam_search'
      ' to false. A model with beams then needs MIXED_SEARCH=true.'
    )


def _rows(
  n: int,
  sampled: bool,
  query: request_lib.Request,
  settings: settings_lib.Settings,
) -> dict[str, Any]:
  """Returns the number of beams or samples for `n` answers."""
  engine = settings.engine
  most = engine.most_samples if sampled else engine.most_beams
  name = 'NUM_SAMPLES' if sampled else 'BEAM_SIZE'
  if not most:
    raise errors.InvalidArgument(
      f'use_beam_search is {not sampled}, but this model supports only'
      f' {"beam search" if sampled else "samples"}. Leave it out, or publish'
      ' the model with MIXED_SEARCH=true for both.'
    )
  _check('n', n, 1, most, f'the {name} of this model')
  if sampled:
    return {'num_samples': n}
  beams = most if query.num_beams is None else query.num_beams
  if n > beams:
    raise errors.InvalidArgument(
      f'n is {n}, but num_beams is only {beams}. Request more beams or fewer'
      ' answers.'
    )
  return {'num_beams': query.num_beams}


def _stop_ids(
  model: servable_lib.Servable, request: _Request, query: request_lib.Request
) -> tuple[int, ...]:
  """Returns all ids that end an answer, beginning with the model's own."""
  own: Sequence[int] = ()
  if not request.ignore_eos:
    own = query.stop_ids or model.settings.end_ids
  if len(request.stop_token_ids) > request_options.MOST_STOP_IDS:
    raise errors.InvalidArgument(
      f'the request has {len(request.stop_token_ids)} stop_token_ids, above'
      f' the limit of {request_options.MOST_STOP_IDS}. Send fewer.'
    )
  check_ids('stop_token_ids', request.stop_token_ids, model)
  return tuple(dict.fromkeys([*own, *request.stop_token_ids]))


def check_ids(
  name: str, ids: Sequence[int], model: servable_lib.Servable
) -> None:
  """Raises errors.InvalidArgument if an id is not in the vocabulary."""
  size = model.codecs.vocab_size
  wrong = next((i for i in ids if not 0 <= i < size), None)
  if wrong is not None:
    raise errors.InvalidArgument(
      f'{name} contains {wrong}, but the vocabulary has 0 to {size - 1}'
    )


def _check(name: str, value: int, least: int, most: int, meaning: str) -> None:
  """Raises errors.InvalidArgument if a value is out of its range."""
  if not least <= value <= most:
    raise errors.InvalidArgument(
      f'{name} is {value}, but must be between {least} and {most} ({meaning})'
    )


def _check_stop_texts(model: servable_lib.Servable, request: _Request) -> None:
  if len(request.stop) > request_options.MOST_STOP_TEXTS:
    raise errors.InvalidArgument(
      f'the request has {len(request.stop)} stop texts, above the limit of'
      f' {request_options.MOST_STOP_TEXTS}. Send fewer.'
    )
  for text in request.stop:
    if not 1 <= len(text) <= request_options.MOST_STOP_CHARACTERS:
      raise errors.InvalidArgument(
        f'a stop text has {len(text)} characters, but must have between 1 and'
        f' {request_options.MOST_STOP_CHARACTERS}'
      )
  if request.stop and model.codecs.words is None:
    raise errors.InvalidArgument(
      'this model has no tokenizer, so it cannot find stop texts in its'
      ' answers. Use stop_token_ids.'
    )
