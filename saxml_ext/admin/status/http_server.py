"""A small HTTP/1.1 server for status pages: GET, one page per connection.

It runs in the event loop that owns what the pages show, so a page is a
snapshot without a lock.
"""

import asyncio
from collections.abc import Callable
import dataclasses
import http
import urllib.parse

from absl import logging

from saxml_ext.common import errors

# A client that sends slower or more than this is not a browser.
_REQUEST_SECS = 5.0
_MAX_HEADER_BYTES = 16 * 2**10


@dataclasses.dataclass(frozen=True)
class Page:
  """What a path shows.

  Attributes:
    text: its contents.
    kind: media type.
  """

  text: str
  kind: str = 'text/html'


class HttpServer:
  """Serves the pages that a function renders.

  Attributes:
    port: where it listens, once started.
  """

  def __init__(self, render: Callable[[str], Page]):
    """Calls `render` with a request's path.

    Args:
      render: returns what to show, or raises NotFound.
    """
    self.port = 0
    self._render = render
    self._server: asyncio.Server | None = None

  async def start(self, port: int) -> None:
    """Listens on this machine's loopback interface only: there is no login.

    Args:
      port: 0 picks a free one.

    Raises:
      OSError: the port is taken.
    """
    self._server = await asyncio.start_server(
      self._serve, '127.0.0.1', port, limit=_MAX_HEADER_BYTES
    )
    self.port = self._server.sockets[0].getsockname()[1]

  async def stop(self) -> None:
    """Stops to listen."""
    if self._server:
      self._server.close()
      await self._server.wait_closed()

  async def _serve(
    self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
  ) -> None:
    try:
      async with asyncio.timeout(_REQUEST_SECS):
        header = await reader.readuntil(b'\r\n\r\n')
        writer.write(self._answer(header.split(b'\r\n', 1)[0]))
        await writer.drain()
    except (
      TimeoutError,
      asyncio.IncompleteReadError,
      asyncio.LimitOverrunError,
      ConnectionError,
    ) as e:
      logging.debug('status page: %s', e)
    finally:
      writer.close()

  def _answer(self, request_line: bytes) -> bytes:
    words = request_line.decode('latin-1').split(' ')
    if len(words) != 3 or words[0] not in ('GET', 'HEAD'):
      return _response(
        http.HTTPStatus.METHOD_NOT_ALLOWED, 'text/plain', 'only GET is served'
      )
    path = urllib.parse.unquote(urllib.parse.urlsplit(words[1]).path)
    try:
      page = self._render(path)
      status, kind, text = http.HTTPStatus.OK, page.kind, page.text
    except (errors.NotFound, errors.InvalidArgument) as e:
      status, kind, text = http.HTTPStatus.NOT_FOUND, 'text/plain', e.message
    except Exception as e:  # pylint: disable=broad-exception-caught
      logging.exception('status page %s', path)
      status, kind, text = (
        http.HTTPStatus.INTERNAL_SERVER_ERROR,
        'text/plain',
        str(e),
      )
    return _response(status, kind, text, body=words[0] == 'GET')


def _response(
  status: http.HTTPStatus, kind: str, text: str, body: bool = True
) -> bytes:
  data = text.encode()
  head = (
    f'HTTP/1.1 {status.value} {status.phrase}\r\n'
    f'Content-Type: {kind}; charset=utf-8\r\n'
    f'Content-Length: {len(data)}\r\n'
    'X-Content-Type-Options: nosniff\r\n'
    'Cache-Control: no-store\r\n'
    'Connection: close\r\n\r\n'
  ).encode()
  return head + (data if body else b'')
