"""Reads JSON objects for handlers, and sends their answers.

Every route with a JSON body needs this: limits on bodies and on requests in
flight, time limits, and the end of the work if the client disconnects.
"""

from collections.abc import Awaitable, Callable, Mapping
import contextlib
from typing import Any

from starlette import requests
from starlette import types

from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems
from saxml_ext.http.web import bodies
from saxml_ext.http.web import guard
from saxml_ext.http.web import off_loop as off_loop_lib

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
  limits = [
    _number(name, headers[name]) * factor
    for name, factor in factors.items()
    if name in headers
  ]
  return min([most, *limits])


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


# An answer: a JSON object, or a stream of events.
Answer = dict[str, Any] | bodies.Events
# A function that answers a request, given the parsed body.
Handler = Callable[[requests.Request, Any], Awaitable[Answer]]


class JsonRoutes:
  """The routes that take a JSON object.

  Attributes:
    off_loop: The threads for slow calls.
    unknown: The handler of fields that this server does not know.
  """

  def __init__(self, options: guard.Options, admission: guard.Admission):
    self.off_loop = off_loop_lib.OffLoop()
    self.unknown = fields.UnknownFields(options.strict_requests)
    self._admission = admission
    self._reader = bodies.Reader(
      options.max_body_bytes, options.most_bodies, options.max_bytes_in_flight
    )

  def route(
    self, handler: Handler, kind: type[fields.Request]
  ) -> types.ASGIApp:
    """Returns an application that reads an object and runs a handler.

    If the client disconnects, the handler is cancelled.

    Args:
      handler: The handler. `state.off_loop_key` of the request is None if it is
        parsed fast, see `off_loop.OffLoop.run`.
      kind: The struct of the request.
    """

    def parse(body: bytes) -> fields.Request:
      return fields.read(fields.parse_object(body), kind, unknown=self.unknown)

    async def app(
      scope: types.Scope, receive: types.Receive, send: types.Send
    ) -> None:
      request = requests.Request(scope, receive)
      with contextlib.ExitStack() as held:
        body = await self._reader.read(request, held)
        key = 'large' if len(body) > bodies.SMALL_BYTES else None
        request.state.off_loop_key = key
        parsed = await self.off_loop.run(key, parse, body)
        del body

        async def respond() -> None:
          answer = await handler(request, parsed)
          response = (
            bodies.json_response(answer) if isinstance(answer, dict) else answer
          )
          await response(scope, receive, send)

        # The request counts only now, so that clients that send nothing take no
        # slot.
        with self._admission.slot():
          await bodies.while_connected(receive, respond())

    return app
