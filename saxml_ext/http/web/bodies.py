"""Reads the bodies of requests, and writes those of answers: JSON and events.

It also notices when a client goes away.
"""

import asyncio
import collections
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
import contextlib
import json
from typing import Any

import msgspec
from starlette import requests
from starlette import responses
from starlette import types

from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems

# A body has so many seconds, and one more for each so many bytes of it that are
# there: who sends less is no client that waits for an answer.
_BODY_SECS = 10.0
_LEAST_BYTES_PER_SEC = 64 * 2**10
# A client sends a body that is too large to its end before it reads why it is
# refused; so much of it, and so long, is thrown away for that.
_DISCARDED_TIMES = 8
_DISCARD_SECS = 5.0


class ClientGone(Exception):
  """The client does not wait for its answer any more."""


class Reader:
  """Receives bodies, of each client only so many at a time.

  Those beyond that wait their turn unread, so that a client which sends its
  bodies slowly holds up itself alone.
  """

  def __init__(self, limit: int, most: int):
    """Receives nothing yet.

    Args:
      limit: The bytes that a body may have.
      most: The bodies that one client may send at a time.
    """
    self._limit = limit
    self._most = most
    self._turns: dict[str, asyncio.Semaphore] = {}
    self._users: collections.Counter[str] = collections.Counter()

  async def read_json(self, request: requests.Request) -> dict[str, Any]:
    """Returns the JSON object that a request brings.

    Args:
      request: not read yet.

    Raises:
      problems.Problem: it is larger, slow, or no JSON object.
      ClientGone: the client went away before its end.
    """
    kind = request.headers.get('content-type', '').partition(';')[0].strip()
    # A page of another site can send anything else without being asked.
    if kind.lower() != 'application/json':
      raise problems.Problem(
        415, f'the content type is {kind!r}; send application/json'
      )
    async with self._turn(request):
      data = await _read(request, self._limit)
    return fields.parse_object(data)

  @contextlib.asynccontextmanager
  async def _turn(self, request: requests.Request) -> AsyncIterator[None]:
    """Waits until its client has few other bodies on their way."""
    address = request.client.host if request.client else ''
    client = request.state.caller or address
    turn = self._turns.setdefault(client, asyncio.Semaphore(self._most))
    self._users[client] += 1
    try:
      try:
        async with asyncio.timeout(_BODY_SECS):
          await turn.acquire()
      except TimeoutError as e:
        raise problems.too_busy(
          f'{self._most} bodies of requests of {client} are on their way, which'
          ' is the limit for one client; try again soon'
        ) from e
      try:
        yield
      finally:
        turn.release()
    finally:
      self._users[client] -= 1
      if not self._users[client]:
        del self._users[client], self._turns[client]


async def _read(request: requests.Request, limit: int) -> bytes:
  chunks: list[bytes] = []
  size = 0
  told = request.headers.get('content-length', '')
  begin = asyncio.get_running_loop().time()
  try:
    async with asyncio.timeout(_BODY_SECS) as timeout:
      if told.isascii() and told.isdigit() and int(told) > limit:
        raise await _too_large(request, limit)
      async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
          raise await _too_large(request, limit)
        chunks.append(chunk)
        secs = _BODY_SECS + size / _LEAST_BYTES_PER_SEC
        timeout.reschedule(begin + secs)
  except TimeoutError as e:
    raise problems.Problem(
      408,
      f'{size} bytes of the body arrived within {_BODY_SECS:g} s; send at least'
      f' {_LEAST_BYTES_PER_SEC} bytes per second',
    ) from e
  except requests.ClientDisconnect as e:
    raise ClientGone() from e
  return b''.join(chunks)


async def _too_large(request: requests.Request, limit: int) -> problems.Problem:
  left = _DISCARDED_TIMES * limit
  try:
    async with asyncio.timeout(_DISCARD_SECS):
      async for chunk in request.stream():
        left -= len(chunk)
        if left < 0:
          break
  except TimeoutError:
    pass  # It gets its answer now.
  return problems.Problem(
    413,
    f'the body is larger than {limit} bytes; send less, or start the gateway'
    ' with a larger --max_body_bytes',
    code='request_too_large',
  )


async def while_waited_for(
  receive: types.Receive, work: Awaitable[None]
) -> None:
  """Does some work unless the client goes away, which ends it.

  Args:
    receive: The channel of a request whose body is read.
    work: is cancelled, and waited for, when the client goes away.

  Raises:
    ClientGone: it did.
  """
  working = asyncio.ensure_future(work)
  watching = asyncio.ensure_future(_disconnected(receive))
  try:
    await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
      raise ClientGone()
    working.result()
  finally:
    working.cancel()
    watching.cancel()
    await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnected(receive: types.Receive) -> None:
  while (await receive())['type'] != 'http.disconnect':
    pass


# Ends a stream of events, as OpenAI's do.
DONE = b'data: [DONE]\n\n'


def of_json(value: Any) -> responses.Response:
  """Returns a JSON answer."""
  data = msgspec.json.encode(value)
  return responses.Response(data, media_type='application/json')


def of_problem(problem: problems.Problem) -> responses.Response:
  """Returns an answer that is an error."""
  # A name that is refused may have half of a surrogate pair, which becomes an
  # escape here.
  return responses.Response(
    json.dumps(problem.body()),
    problem.status,
    problem.headers(),
    media_type='application/json',
  )


def event(value: Any) -> bytes:
  """Returns a server-sent event."""
  return b'data: ' + msgspec.json.encode(value) + b'\n\n'


class Events:
  """A stream of server-sent events; an ASGI application."""

  def __init__(self, events: AsyncGenerator[bytes, None]):
    """Sends `events` as they come, and closes them at the end."""
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
