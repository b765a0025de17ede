"""An HTTP server within a program that has other things to do.

It runs on the program's event loop, so that what it shows is a snapshot
without a lock. Unlike uvicorn by itself it leaves signals to the program, says
when a port is taken, and tells an application who called: the certificate of a
TLS client is in `request.state.peer_certificate`, as `ssl.getpeercert` gives
it.
"""

import asyncio
from collections.abc import Iterator
import contextlib
import socket
import ssl
from typing import Any

from starlette import types
import uvicorn
from uvicorn.protocols.http import h11_impl

# A client that takes longer for the header of a request is not a browser.
_HEADER_SECS = 10.0
# Requests in flight at the end get this long, unless somebody says otherwise.
_GRACE_SECS = 1.0
# A connection without a request is closed after this, likewise.
_KEEP_ALIVE_SECS = 5.0
_MAX_HEADER_BYTES = 16 * 2**10


class _Protocol(h11_impl.H11Protocol):
  """Knows its client's certificate, and hangs up on those that say nothing."""

  def connection_made(self, transport: Any) -> None:
    super().connection_made(transport)
    connection = transport.get_extra_info('ssl_object')
    found = connection.getpeercert() if connection else None
    self.app_state: dict[str, Any] = {
      **self.app_state,
      'peer_certificate': found or {},
    }
    self.loop.call_later(_HEADER_SECS, self._check)

  def _check(self) -> None:
    if self.scope is None and not self.transport.is_closing():
      self.transport.close()


class _Server(uvicorn.Server):
  @contextlib.contextmanager
  def capture_signals(self) -> Iterator[None]:
    yield  # They are the program's.


class WebServer:
  """Serves an ASGI application.

  Attributes:
    port: where it listens, once started.
  """

  def __init__(
    self,
    app: types.ASGIApp,
    tls: ssl.SSLContext | None = None,
    grace_secs: float = _GRACE_SECS,
    keep_alive_secs: float = _KEEP_ALIVE_SECS,
  ) -> None:
    """Does nothing before `start`.

    Args:
      app: what to serve.
      tls: with it, HTTPS alone is spoken.
      grace_secs: how long `stop` lets requests in flight go on.
      keep_alive_secs: how long a connection may be without a request.
    """
    self.port = 0
    self._config = uvicorn.Config(
      app,
      http=_Protocol,
      ws='none',
      lifespan='off',
      log_config=None,
      log_level='warning',
      access_log=False,
      server_header=False,
      timeout_graceful_shutdown=grace_secs,
      timeout_keep_alive=keep_alive_secs,
      h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
    )
    self._config.load()
    self._config.ssl = tls
    self._server = _Server(self._config)
    self._task: asyncio.Task[None] | None = None

  async def start(self, port: int, host: str = '127.0.0.1') -> None:
    """Listens; returns when it does.

    Args:
      port: 0 picks a free one.
      host: address of the interface; '' is every one.

    Raises:
      OSError: the port is taken, or there is no such interface.
    """
    listener = _listener(host, port)
    self.port = listener.getsockname()[1]
    self._task = asyncio.create_task(self._server.serve([listener]))
    while not self._server.started and not self._task.done():
      await asyncio.sleep(0.001)
    if self._task.done():
      self._task.result()

  async def stop(self) -> None:
    """Finishes requests that are in flight, as long as they are let."""
    self._server.should_exit = True
    if self._task:
      await self._task


def _listener(host: str, port: int) -> socket.socket:
  if not host and socket.has_dualstack_ipv6():
    found = socket.create_server(
      ('', port), family=socket.AF_INET6, dualstack_ipv6=True
    )
  else:
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    found = socket.create_server((host, port), family=family)
  # asyncio sets TCP_NODELAY only where the protocol is named: without it, an
  # answer in two parts waits 40 ms for the client's delayed acknowledgement.
  return socket.socket(
    found.family, found.type, socket.IPPROTO_TCP, fileno=found.detach()
  )
