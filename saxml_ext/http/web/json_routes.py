"""Routes that take a JSON object and ask the cell."""

from collections.abc import Awaitable, Callable, Mapping
import contextlib
import time
from typing import Any

from starlette import requests
from starlette import types

from saxml_ext.client import sax_aio
from saxml_ext.common import errors
from saxml_ext.http.backend import catalogue as catalogue_lib
from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import embeddings
from saxml_ext.http.protocol import model_profiles
from saxml_ext.http.protocol import predict
from saxml_ext.http.protocol import problems
from saxml_ext.http.protocol import tokens
from saxml_ext.http.web import bodies
from saxml_ext.http.web import completion_routes
from saxml_ext.http.web import gateway_metrics as metrics_lib
from saxml_ext.http.web import gateway_options as options_lib
from saxml_ext.http.web import merging
from saxml_ext.http.web import responses

# Header -> what makes seconds of it.
_SECONDS = {
  'x-request-timeout': 1.0,
  # Envoy's, to whom it passes a request on.
  'x-envoy-expected-rq-timeout-ms': 1e-3,
}
# The openai package's; how long it waits for the next bytes, which is how long
# it waits for an answer that comes whole.
_READ_TIMEOUT = 'x-stainless-read-timeout'


def request_seconds(
  headers: Mapping[str, str], stream: bool, most: float
) -> float:
  """Seconds within which a request is to be answered.

  Args:
    headers: names in lower case.
    stream: whether the answer comes in parts.
    most: this server's limit.

  Raises:
    problems.BadRequest: a header is no positive number.
  """
  found = [most]
  for name, factor in _SECONDS.items():
    if name in headers:
      found.append(_number(name, headers[name]) * factor)
  if not stream and _READ_TIMEOUT in headers:
    found.append(_number(_READ_TIMEOUT, headers[_READ_TIMEOUT]))
  return min(found)


def _number(name: str, value: str) -> float:
  try:
    result = float(value)
  except ValueError:
    result = 0.0
  if not result > 0:  # Not a number, too.
    raise problems.BadRequest(
      f'the header {name}: {value[:40]} is no positive number of seconds'
      if not name.endswith('-ms')
      else f'the header {name}: {value[:40]} is no positive number'
    )
  return result


Handler = Callable[
  [requests.Request, dict[str, Any]], Awaitable[responses.Answer]
]


_Form = predict.Form


class Posted:
  """An ASGI application that reads a JSON object and has it answered.

  When the client goes away, so does what it asked for.
  """

  def __init__(
    self,
    handler: Handler,
    reader: bodies.Reader,
    place: Callable[[], contextlib.AbstractContextManager[None]],
  ):
    """Takes what every route of its kind shares.

    Args:
      handler: Answers the request.
      reader: Receives its body.
      place: Counts it as in flight once the body is there, so that who sends
        nothing keeps nobody out.
    """
    self._handler = handler
    self._reader = reader
    self._place = place

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    request = requests.Request(scope, receive)
    body = await self._reader.read_json(request)

    async def answer() -> None:
      response = await self._handler(request, body)
      await response(scope, receive, send)

    with self._place():
      await bodies.while_waited_for(receive, answer())


class Work:
  """The handlers."""

  def __init__(
    self,
    catalogue: catalogue_lib.Catalogue,
    options: options_lib.Options,
  ):
    self._catalogue = catalogue
    self._options = options

  async def completions(
    self, request: requests.Request, body: dict[str, Any]
  ) -> responses.Answer:
    """/v1/completions."""
    form = completions.parse(body, self._profile_of)
    return await self._generate(request, form, 'cmpl-')

  async def chat_completions(
    self, request: requests.Request, body: dict[str, Any]
  ) -> responses.Answer:
    """/v1/chat/completions."""
    form = chat.parse(body, self._profile_of)
    return await self._generate(request, form, 'chatcmpl-')

  async def _generate(
    self, request: requests.Request, form: _Form, prefix: str
  ) -> responses.Answer:
    stream = form.sampling.stream
    work = self._generation(request, form, self._timeout(request, stream))
    head = {
      'id': prefix + request.state.request_id,
      'created': int(time.time()),
    }
    if stream:
      return await work.events(head)
    return responses.of_json(await work.whole(head))

  async def predict(
    self, request: requests.Request, body: dict[str, Any]
  ) -> responses.Answer:
    """Vertex AI's predictions."""
    forms = predict.parse(body, self._profile_of).forms
    timeout = self._timeout(request)

    async def one(form: _Form) -> dict[str, Any]:
      work = self._generation(request, form, timeout)
      answer = await work.whole({})
      return {'choices': answer['choices'], 'usage': answer['usage']}

    calls = [one(form) for form in forms]
    found = await merging.all_of(calls, completion_routes.AT_ONCE)
    return responses.of_json({'predictions': found})

  async def embeddings(
    self, request: requests.Request, body: dict[str, Any]
  ) -> responses.Answer:
    """/v1/embeddings."""
    form = embeddings.parse(body)
    model_id = await self._find(request, form.model)
    model = self._catalogue.model(model_id)
    options = sax_aio.ModelOptions(self._timeout(request))

    async def one(text: str) -> tuple[list[float], int | None]:
      found = await model.Embed(text, options)
      try:
        return found, len((await model.Tokenize(text, options)).ids)
      except (errors.InvalidArgument, errors.PermissionDenied):
        return found, None  # It takes ids, or the caller may embed alone.

    calls = [one(text) for text in form.texts]
    found = await merging.all_of(calls, completion_routes.AT_ONCE)
    counts = [count for _, count in found if count is not None]
    tokens = sum(counts) if len(counts) == len(found) else None
    _record(request).used(tokens or 0, 0)
    return responses.of_json(
      form.body(model_id, [values for values, _ in found], tokens)
    )

  async def tokenize(
    self, request: requests.Request, body: dict[str, Any]
  ) -> responses.Answer:
    """/tokenize."""
    form = tokens.parse_tokenize(body, self._profile_of)
    model_id = await self._find(request, form.model)
    model = self._catalogue.model(model_id)
    options = sax_aio.ModelOptions(self._timeout(request))
    found = await model.Tokenize(form.text, options)
    return responses.of_json(form.body(found))

  async def detokenize(
    self, request: requests.Request, body: dict[str, Any]
  ) -> responses.Answer:
    """/detokenize."""
    form = tokens.parse_detokenize(body)
    model_id = await self._find(request, form.model)
    model = self._catalogue.model(model_id)
    options = sax_aio.ModelOptions(self._timeout(request))
    found = await model.Detokenize(form.ids, options)
    return responses.of_json(form.body(found))

  async def _find(self, request: requests.Request, name: str | None) -> str:
    model_id = await self._catalogue.find(name)
    _record(request).model = model_id
    return model_id

  def _generation(
    self, request: requests.Request, form: _Form, timeout: float
  ) -> completion_routes.Generation:
    return completion_routes.Generation(
      self._catalogue,
      _record(request),
      form,
      timeout,
      self._options.queue_secs,
    )

  def _timeout(self, request: requests.Request, stream: bool = False) -> float:
    return request_seconds(
      request.headers, stream, self._options.request_timeout
    )

  def _profile_of(self, name: str | None) -> model_profiles.Profile:
    model_id = self._catalogue.full_id(name or self._catalogue.default)
    return self._options.profiles.get(model_id, self._options.profile)


def _record(request: requests.Request) -> metrics_lib.Record:
  return request.state.record
