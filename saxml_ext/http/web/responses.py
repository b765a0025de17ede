"""Answers over HTTP: JSON, errors, and events that come one by one."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
import contextlib
import json
from typing import Any

from starlette import responses
from starlette import types

from saxml_ext.http.protocol import problems

# Ends a stream of events, as OpenAI's do.
DONE = b'data: [DONE]\n\n'


def encode(value: Any) -> bytes:
  """A value as JSON in few bytes."""
  text = json.dumps(value, ensure_ascii=False, separators=(',', ':'))
  # Half of a surrogate pair, in a name that is refused, becomes its \\u escape.
  return text.encode(errors='backslashreplace')


def of_json(value: Any, status: int = 200) -> responses.Response:
  """A JSON answer."""
  return responses.Response(
    encode(value), status, media_type='application/json'
  )


def of_problem(problem: problems.Problem) -> responses.Response:
  """An answer that is an error."""
  response = of_json(problem.body(), problem.status)
  response.headers.update(problem.headers())
  return response


def event(value: Any) -> bytes:
  """A server-sent event."""
  return b'data: ' + encode(value) + b'\n\n'


class Events:
  """A stream of server-sent events; an ASGI application."""

  def __init__(self, events: AsyncGenerator[bytes, None]):
    """`events` are sent as they come, and closed at the end."""
    self._events = events

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    headers = [
      (b'content-type', b'text/event-stream; charset=utf-8'),
      (b'cache-control', b'no-cache'),
      # nginx would collect events before it passes them on.
      (b'x-accel-buffering', b'no'),
    ]
    async with contextlib.aclosing(self._events):
      await send(
        {'type': 'http.response.start', 'status': 200, 'headers': headers}
      )
      async for data in self._events:
        await send(
          {'type': 'http.response.body', 'body': data, 'more_body': True}
        )
    await send({'type': 'http.response.body', 'body': b''})


# What answers a request: starlette's responses, or `Events`.
Answer = Callable[[types.Scope, types.Receive, types.Send], Awaitable[None]]
Headers = Mapping[str, str]
