"""Reads what a client sends, and notices when it goes away."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from starlette import requests
from starlette import types

from saxml_ext.http.protocol import fields
from saxml_ext.http.protocol import problems

# A body that takes longer to arrive is not read to its end.
_BODY_SECS = 60.0
# A client sends a body that is too large to its end before it reads why it is
# refused; so much of it, and so long, is thrown away for that.
_DISCARDED_TIMES = 8
_DISCARD_SECS = 5.0


class ClientGone(Exception):
  """The client does not wait for its answer any more."""


async def read_json(request: requests.Request, limit: int) -> dict[str, Any]:
  """The JSON object that a request brings.

  Args:
    request: not read yet.
    limit: bytes that its body may have.

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
  return fields.parse_object(await _read(request, limit))


async def _read(request: requests.Request, limit: int) -> bytes:
  chunks: list[bytes] = []
  size = 0
  told = request.headers.get('content-length', '')
  try:
    async with asyncio.timeout(_BODY_SECS):
      if told.isascii() and told.isdigit() and int(told) > limit:
        raise await _too_large(request, limit)
      async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
          raise await _too_large(request, limit)
        chunks.append(chunk)
  except TimeoutError as e:
    raise problems.Problem(
      408, f'the body did not arrive within {_BODY_SECS:g} s'
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
    receive: of a request whose body is read.
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
