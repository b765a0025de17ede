"""Handles routes that take a JSON object and use the cell."""

from collections.abc import Awaitable, Callable, Mapping
import contextlib
import time
from typing import Any, TypeVar

from starlette import requests
from starlette import types

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import checkpoint_templates
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import templates
from saxml_ext.http.protocol import text_requests
from saxml_ext.http.web import bodies
from saxml_ext.http.web import catalogue as catalogue_lib
from saxml_ext.http.web import completion_routes
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.http.web import guard
from saxml_ext.http.web import off_loop

_R = TypeVar('_R')
# Maps each header to its unit in seconds.
_SECONDS = {
  'x-request-timeout': 1.0,
  # Envoy sends this header to the server that it forwards a request to.
  'x-envoy-expected-rq-timeout-ms': 1e-3,
}
# The openai package sends how long it waits for the next bytes. For an answer
# in one piece, this is the time limit of the answer.
_READ_TIMEOUT = 'x-stainless-read-timeout'


def request_seconds(
  headers: Mapping[str, str], stream: bool, most: float
) -> float:
  """Returns the time limit of a request, in seconds.

  Args:
    headers: The headers, with names in lower case.
    stream: True if the answer is a stream.
    most: The limit of this server, in seconds.

  Raises:
    problems.BadRequest: A header is not a positive number.
  """
  factors = _SECONDS if stream else _SECONDS | {_READ_TIMEOUT: 1.0}
  found = [most]
  for name, factor in factors.items():
    if name in headers:
      found.append(_number(name, headers[name]) * factor)
  return min(found)


def _number(name: str, value: str) -> float:
  try:
    result = float(value)
  except ValueError:
    result = 0.0
  if not result > 0:  # This is also true for NaN.
    unit = '' if name.endswith('-ms') else ' of seconds'
    raise problems.BadRequest(
      f'the header {name}: {value[:40]} is not a positive number{unit}'
    )
  return result


_Form = completions.Form
_CompletionsRequest = completions.Request
# An answer: a JSON object, or a stream of events.
_Answer = dict[str, Any] | bodies.Events
# A function that answers a request, given the parsed body.
Handler = Callable[[requests.Request, Any], Awaitable[_Answer]]


class Posted:
  """An ASGI application that reads a JSON object and runs a handler.

  If the client disconnects, the handler is cancelled.
  """

  def __init__(
    self,
    handler: Handler,
    kind: type[fields.Request],
    reader: bodies.Reader,
    work: 'Work',
    place: Callable[[], contextlib.AbstractContextManager[None]],
  ):
    """Sets the handler and its settings.

    Args:
      handler: The handler that answers the request.
      kind: The struct of the request.
      reader: The reader that receives the body.
      work: The object that parses requests.
      place: The context that counts a request as in flight. It starts after the
        body was received, so that clients that send nothing take no slot.
    """
    self._handler = handler
    self._kind = kind
    self._reader = reader
    self._work = work
    self._place = place

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    request = requests.Request(scope, receive)
    with contextlib.ExitStack() as held:
      body = await self._reader.read(request, held)
      request.state.is_large = len(body) > bodies.SMALL_BYTES
      asked = await self._work.run(request, self._parsed, body)
      del body

      async def answer() -> None:
        found = await self._handler(request, asked)
        app = bodies.of_json(found) if isinstance(found, dict) else found
        await app(scope, receive, send)

      with self._place():
        await bodies.while_waited_for(receive, answer())

  def _parsed(self, body: bytes) -> fields.Request:
    value = fields.parse_object(body)
    return fields.read(value, self._kind, unknown=self._work.unknown)


class Work:
  """The handlers of the routes that use the cell.

  Attributes:
    unknown: The handler of fields that this server does not know.
  """

  def __init__(
    self, catalogue: catalogue_lib.Catalogue, options: guard.Options
  ):
    self._catalogue = catalogue
    self._options = options
    self._off_loop = off_loop.OffLoop()
    self.unknown = fields.UnknownFields(options.strict_requests)

  async def run(
    self,
    request: requests.Request,
    call: Callable[..., _R],
    *args: Any,
    renders: bool = False,
  ) -> _R:
    """Returns the result of a call, which leaves the event loop if it is slow.

    Args:
      request: The request; `state.is_large` is set.
      call: The function that parses the request or a part of it.
      *args: Its arguments.
      renders: True if it may render the template of the model that the first
        argument names.
    """
    if renders:
      template = self._profile_of(args[0].model).template
      # Such templates are programs of strangers. Each has turns of its own.
      if isinstance(template, checkpoint_templates.CheckpointTemplate):
        return await self._off_loop.run(template, call, *args)
    if request.state.is_large:
      return await self._off_loop.run('large', call, *args)
    return call(*args)

  async def completions(
    self, request: requests.Request, asked: _CompletionsRequest
  ) -> _Answer:
    """Continues a prompt, or several."""
    form = await self.run(request, completions.form_of, asked, self._profile_of)
    return await self._generate(request, form, 'cmpl-')

  async def chat_completions(
    self, request: requests.Request, asked: chat.Request
  ) -> _Answer:
    """Answers a conversation."""
    form = await self.run(
      request, chat.form_of, asked, self._profile_of, renders=True
    )
    return await self._generate(request, form, 'chatcmpl-')

  async def _generate(
    self, request: requests.Request, form: _Form, prefix: str
  ) -> _Answer:
    stream = form.request.stream
    work = self._generation(request, form, self._timeout(request, stream))
    head = {
      'id': prefix + request.state.request_id,
      'created': int(time.time()),
    }
    return await (work.events(head) if stream else work.whole(head))

  async def predict(
    self, request: requests.Request, asked: text_requests.Predict
  ) -> _Answer:
    """Makes completions in the form of Vertex AI."""
    # The instances may have several templates.
    forms = await self._off_loop.run(
      'predict', asked.forms, self._profile_of, self.unknown
    )
    timeout = self._timeout(request)

    async def one(form: _Form) -> dict[str, Any]:
      work = self._generation(request, form, timeout)
      answer = await work.whole({})
      return {'choices': answer['choices'], 'usage': answer['usage']}

    calls = [one(form) for form in forms]
    found = await completion_routes.all_of(calls, completion_routes.AT_ONCE)
    return {'predictions': found}

  async def embeddings(
    self, request: requests.Request, asked: text_requests.Embeddings
  ) -> _Answer:
    """Embeds texts."""
    model, options = await self._model(request, asked.model)

    async def one(text: str) -> tuple[list[float], int | None]:
      found = await model.Embed(text, options)
      try:
        return found, len((await model.Tokenize(text, options)).ids)
      except (errors.InvalidArgument, errors.PermissionDenied):
        return found, None  # The model takes ids, or the caller may only embed.

    calls = [one(text) for text in asked.texts()]
    found = await completion_routes.all_of(calls, completion_routes.AT_ONCE)
    counts = [count for _, count in found if count is not None]
    tokens = sum(counts) if len(counts) == len(found) else None
    _record(request).used(tokens or 0, 0)
    name = _record(request).name
    return asked.body(name, [values for values, _ in found], tokens)

  async def tokenize(
    self, request: requests.Request, asked: text_requests.Tokenize
  ) -> _Answer:
    """Splits a prompt or a conversation into tokens."""
    text, adds_start = await self.run(
      request,
      text_requests.Tokenize.text,
      asked,
      self._profile_of,
      renders=asked.messages is not None,
    )
    model, options = await self._model(request, asked.model)
    found = await model.Tokenize(text, options, adds_start)
    return {
      'count': len(found.ids),
      'max_model_len': found.max_model_len,
      'tokens': list(found.ids),
      'token_strs': list(found.texts) if asked.return_token_strs else None,
    }

  async def detokenize(
    self, request: requests.Request, asked: text_requests.Detokenize
  ) -> _Answer:
    """Returns the text of tokens."""
    model, options = await self._model(request, asked.model)
    return {'prompt': await model.Detokenize(asked.tokens, options)}

  async def _model(
    self, request: requests.Request, name: str | None
  ) -> tuple[sax_aio.LanguageModel, sax_aio.ModelOptions]:
    """Returns the client of a model, and the options of a call to it."""
    model_id = await completion_routes.find(
      self._catalogue, _record(request), name
    )
    options = sax_aio.ModelOptions(self._timeout(request))
    return self._catalogue.model(model_id), options

  def _generation(
    self, request: requests.Request, form: _Form, timeout: float
  ) -> completion_routes.Generation:
    return completion_routes.Generation(
      self._catalogue, _record(request), form, timeout, self._options.queue_secs
    )

  def _timeout(self, request: requests.Request, stream: bool = False) -> float:
    return request_seconds(
      request.headers, stream, self._options.request_timeout
    )

  def _profile_of(self, name: str | None) -> templates.Profile:
    model_id = self._catalogue.full_id(name or self._catalogue.default)
    return self._options.profile_of(model_id)


def _record(request: requests.Request) -> metrics_lib.Record:
  return request.state.record
