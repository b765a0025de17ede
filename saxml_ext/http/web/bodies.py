"""Reads request bodies, and writes answers as JSON or events.

It also detects when a client disconnects.
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

from saxml_ext.http.protocol import problems

# The time limit of a body: this many seconds, plus the received bytes divided
# by the minimum rate. Slower clients are disconnected, because they may be
# hostile.
_BODY_SECS = 10.0
_LEAST_BYTES_PER_SEC = 64 * 2**10
# A client sends an oversized body to its end before it reads the error. So up
# to this multiple of the limit is read and discarded, for at most this many
# seconds.
_DISCARDED_TIMES = 8
_DISCARD_SECS = 5.0
# Bodies up to this size need no room among the bytes in flight, because their
# connections have buffers of this size anyway. So large bodies cannot delay
# them.
SMALL_BYTES = 64 * 2**10


class ClientDisconnected(Exception):
  """An exception: the client disconnected before it got its answer."""


class Reader:
  """Receives bodies, with limits for each client and for the process.

  Further bodies of the same client wait unread. A client that sends its bodies
  slowly therefore delays only itself. Large bodies also wait for room among all
  bytes in flight, of which one client may have half.
  """

  def __init__(self, limit: int, most: int, most_bytes: int):
    """Sets the limits.

    Args:
      limit: The maximum size of a body, in bytes.
      most: The maximum number of bodies that one client may send at a time.
      most_bytes: The maximum size of all large bodies of requests in flight.
    """
    self._limit = limit
    self._most = most
    self._most_bytes = max(most_bytes, limit)
    self._turns: dict[str, asyncio.Semaphore] = {}
    self._users: collections.Counter[str] = collections.Counter()
    self._bytes: collections.Counter[str] = collections.Counter()
    self._freed = asyncio.Event()

  async def read(
    self, request: requests.Request, held: contextlib.ExitStack
  ) -> bytes:
    """Returns the body of a request with JSON.

    Args:
      request: The request, whose body was not read yet.
      held: The stack that gives the room of a large body back.

    Raises:
      problems.Problem: The body is too large, too slow or not JSON.
      ClientDisconnected: The client disconnected before the end of the body.
    """
    kind = request.headers.get('content-type', '').partition(';')[0].strip()
    # Browsers send other content types for pages of other sites without asking
    # this server first.
    if kind.lower() != 'application/json':
      raise problems.Problem(
        415, f'the content type is {kind!r}. Send application/json'
      )
    address = request.client.host if request.client else ''
    client = request.state.caller or address
    async with self._turn(client):
      length = _length(request)
      size = self._limit if length is None else length
      if not SMALL_BYTES < size <= self._limit:
        return await _read(request, self._limit)
      await self._take(client, size)
      held.callback(lambda: self._give_back(client, size))
      data = await _read(request, self._limit)
      self._give_back(client, size - len(data))
      size = len(data)
      return data

  async def _take(self, client: str, size: int) -> None:
    """Waits for room for a large body."""
    share = max(self._most_bytes // 2, self._limit)
    try:
      async with asyncio.timeout(_BODY_SECS):
        while (
          self._bytes.total() + size > self._most_bytes
          or self._bytes[client] + size > share
        ):
          self._freed.clear()
          await self._freed.wait()
    except TimeoutError as e:
      raise problems.too_busy(
        f'large requests in flight have {self._bytes.total()} bytes, of which'
        f' {self._bytes[client]} are of {client}. The limits are'
        f' {self._most_bytes} and {share}. Try again soon, or start the gateway'
        ' with a larger --max_bytes_in_flight'
      ) from e
    self._bytes[client] += size

  def _give_back(self, client: str, size: int) -> None:
    self._bytes[client] -= size
    if not self._bytes[client]:
      del self._bytes[client]
    self._freed.set()

  @contextlib.asynccontextmanager
  async def _turn(self, client: str) -> AsyncIterator[None]:
    """Waits until the client sends fewer bodies than its limit."""
    turn = self._turns.setdefault(client, asyncio.Semaphore(self._most))
    self._users[client] += 1
    try:
      try:
        async with asyncio.timeout(_BODY_SECS):
          await turn.acquire()
      except TimeoutError as e:
        raise problems.too_busy(
          f'{client} is sending {self._most} request bodies, the limit for'
          ' one client. Try again soon'
        ) from e
      try:
        yield
      finally:
        turn.release()
    finally:
      self._users[client] -= 1
      if not self._users[client]:
        del self._users[client], self._turns[client]


def _length(request: requests.Request) -> int | None:
  """Returns the announced length of a body, in bytes; None if there is none."""
  length = request.headers.get('content-length', '')
  # Longer numbers would take long to parse.
  if length.isascii() and length.isdigit():
    return int(length[:20])
  return None


async def _read(request: requests.Request, limit: int) -> bytes:
  chunks: list[bytes] = []
  size = 0
  begin = asyncio.get_running_loop().time()
  try:
    async with asyncio.timeout(_BODY_SECS) as timeout:
      if (_length(request) or 0) > limit:
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
      f'only {size} bytes of the body arrived within {_BODY_SECS:g} s. Send'
      f' at least {_LEAST_BYTES_PER_SEC} bytes per second',
    ) from e
  except requests.ClientDisconnect as e:
    raise ClientDisconnected() from e
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
    pass  # The error is sent now.
  return problems.Problem(
    413,
    f'the body is larger than {limit} bytes. Send less, or start the gateway'
    ' with a larger --max_body_bytes',
    code='request_too_large',
  )


async def while_connected(
  receive: types.Receive, work: Awaitable[None]
) -> None:
  """Runs some work, and cancels it if the client disconnects.

  Args:
    receive: The ASGI channel of a request whose body was read.
    work: The work. After a disconnect, it is cancelled and awaited.

  Raises:
    ClientDisconnected: The client disconnected.
  """
  working = asyncio.ensure_future(work)
  watching = asyncio.ensure_future(_disconnected(receive))
  try:
    await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
      raise ClientDisconnected()
    working.result()
  finally:
    working.cancel()
    watching.cancel()
    await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnected(receive: types.Receive) -> None:
  while (await receive())['type'] != 'http.disconnect':
    pass


# OpenAI's streams end with this event.
DONE = b'data: [DONE]\n\n'


def json_response(value: dict[str, Any]) -> responses.Response:
  """Returns a JSON answer."""
  data = msgspec.json.encode(value)
  return responses.Response(data, media_type='application/json')


def problem_response(problem: problems.Problem) -> responses.Response:
  """Returns the answer for an error."""
  # A rejected name may have half of a surrogate pair, which must be escaped
  # here.
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
  """A stream of server-sent events, as an ASGI application."""

  def __init__(self, events: AsyncGenerator[bytes, None]):
    """Sets the generator of the events, which is closed at the end."""
    self._events = events

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    headers = [
      (b'content-type', b'text/event-stream; charset=utf-8'),
      (b'cache-control', b'no-cache'),
      # Without this header, nginx would buffer events before it forwards them.
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
