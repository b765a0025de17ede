"""An HTTP server that shares the event loop of its program.

Pages need no lock for a snapshot of the program's state, because they are
rendered on the same event loop. Unlike plain uvicorn, the server leaves signals
to the program and reports a used port. It also passes the certificate of a TLS
client to the application, as `request.state.peer_certificate` in the format of
`ssl.getpeercert`.
"""

import asyncio
from collections.abc import Iterator
import contextlib
import ipaddress
import logging
import re
import socket
import ssl
from typing import Any

import h11
from starlette import types
import uvicorn
from uvicorn.protocols.http import h11_impl

from saxml_ext.common.security import tls

# A client that takes longer to send a header is not a browser.
_HEADER_SECS = 10.0
# By default, requests in flight may take this long when the server stops.
_GRACE_SECS = 1.0
# By default, a connection without a request is closed after this time.
_KEEP_ALIVE_SECS = 5.0
_MAX_HEADER_BYTES = 16 * 2**10
# This is the limit for one client. A browser opens 6 connections, and a process
# may have 1,024 files.
_MOST_PER_CLIENT = 128
# These leading bits of an IPv6 address identify a client, which may use all
# addresses of its network.
_CLIENT_BITS = 64
_END_OF_HEADER = re.compile(rb'\n\r?\n')
_LENIENT = re.compile(rb'(?<!\r)\n|\n[ \t]')
_logger = logging.getLogger(__name__)


class _Connection(h11.Connection):
  """Rejects requests that proxies may misread (RFC 9112, 2.2, 5.2 and 6.1)."""

  def __init__(self) -> None:
    super().__init__(h11.SERVER, _MAX_HEADER_BYTES)

  @property
  def is_owed(self) -> bool:
    """True if a header is incomplete, or the body of an answered request is."""
    if self.their_state is h11.SEND_BODY:
      return self.our_state is h11.DONE
    return self.their_state is h11.IDLE and bool(self.trailing_data[0])

  def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
    if self.their_state is h11.IDLE:
      data = self.trailing_data[0]
      end = _END_OF_HEADER.search(data)
      if end and _LENIENT.search(data, 0, end.end()):
        raise h11.RemoteProtocolError('a header line is folded or ends with LF')
    event = super().next_event()
    if isinstance(event, h11.Request):
      names = {name for name, _ in event.headers}
      if names >= {b'content-length', b'transfer-encoding'}:
        raise h11.RemoteProtocolError('the body has two lengths')
    return event


class _Config(uvicorn.Config):
  """Uvicorn's settings, and the limit on connections per client."""

  most_per_client = _MOST_PER_CLIENT


class _Protocol(h11_impl.H11Protocol):
  """Stores the client's certificate and enforces the limits of a client."""

  conn: _Connection
  config: _Config
  _header_timer: asyncio.TimerHandle | None = None
  _group = ''

  def connection_made(self, transport: Any) -> None:
    super().connection_made(transport)
    self.conn = _Connection()
    connection = transport.get_extra_info('ssl_object')
    found = connection.getpeercert() if connection else None
    self.app_state: dict[str, Any] = {
      **self.app_state,
      'peer_certificate': found or {},
    }
    self._group = _group(self.client[0] if self.client else '')
    mine = [c for c in self.connections if self._is_of_same_client(c)]
    if len(mine) > self.config.most_per_client:
      self._refuse(self.config.most_per_client)
    self._header_timer = self.loop.call_later(_HEADER_SECS, self._hang_up)

  def data_received(self, data: bytes) -> None:
    super().data_received(data)
    self._watch_header()

  def connection_lost(self, exc: Exception | None) -> None:
    super().connection_lost(exc)
    self._stop_timer()

  def _watch_header(self) -> None:
    """Starts the timeout at a header's first byte, and stops it at the last."""
    if self.conn.is_owed:
      if self._header_timer is None:
        self._header_timer = self.loop.call_later(_HEADER_SECS, self._hang_up)
    elif self.conn.their_state is not h11.IDLE:
      self._stop_timer()

  def _stop_timer(self) -> None:
    if self._header_timer:
      self._header_timer.cancel()
      self._header_timer = None

  def _hang_up(self) -> None:
    if not self.transport.is_closing():
      self.transport.close()

  def _is_of_same_client(self, other: object) -> bool:
    return isinstance(other, _Protocol) and other._group == self._group

  def _refuse(self, most: int) -> None:
    text = (
      f'{self.client and self.client[0]} has {most} connections, which is the'
      ' limit for one client. Close some, or reuse them.\n'
    )
    self.transport.write(
      b'HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\n'
      b'content-type: text/plain\r\nretry-after: 1\r\n'
      + f'content-length: {len(text)}\r\n\r\n{text}'.encode()
    )
    self.transport.close()


def _group(address: str) -> str:
  """Returns the key of a client: its IPv4 address, or its IPv6 network."""
  try:
    found = ipaddress.ip_address(address.partition('%')[0])
  except ValueError:
    return address
  mapped = getattr(found, 'ipv4_mapped', None)
  if found.version == 4 or mapped:
    return str(mapped or found)
  return str(ipaddress.ip_network((int(found), _CLIENT_BITS), strict=False))


class _Server(uvicorn.Server):
  @contextlib.contextmanager
  def capture_signals(self) -> Iterator[None]:
    yield  # The program handles signals.


class WebServer:
  """Serves an ASGI application.

  Attributes:
    port: The port, once the server is started.
  """

  def __init__(
    self,
    app: types.ASGIApp,
    tls: ssl.SSLContext | None = None,
    grace_secs: float = _GRACE_SECS,
    keep_alive_secs: float = _KEEP_ALIVE_SECS,
    most_per_client: int = _MOST_PER_CLIENT,
  ) -> None:
    """Does nothing before `start`.

    Args:
      app: The ASGI application.
      tls: The TLS context; with it, the server accepts HTTPS only.
      grace_secs: The time that `stop` gives to requests in flight.
      keep_alive_secs: The time that a connection may stay open without a
        request.
      most_per_client: The limit of connections per client address.
    """
    self.port = 0
    self._config = _Config(
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
    )
    self._config.most_per_client = most_per_client
    self._config.load()
    self._config.ssl = tls
    self._server = _Server(self._config)
    self._task: asyncio.Task[None] | None = None

  async def start(self, port: int, host: str = '127.0.0.1') -> None:
    """Starts to listen, and returns when the port accepts connections.

    Args:
      port: The port. 0 picks a free one.
      host: The address of the interface. '' is every interface.

    Raises:
      OSError: The port is in use, or there is no such interface.
    """
    listener = _listener(host, port)
    self.port = listener.getsockname()[1]
    self._task = asyncio.create_task(self._server.serve([listener]))
    while not self._server.started and not self._task.done():
      await asyncio.sleep(0.001)
    if self._task.done():
      self._task.result()

  async def stop(self) -> None:
    """Finishes the requests in flight, within the grace period."""
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
  # asyncio sets TCP_NODELAY only if the protocol is given. Without it, a
  # response in two parts waits 40 ms for the client's delayed acknowledgement.
  return socket.socket(
    found.family, found.type, socket.IPPROTO_TCP, fileno=found.detach()
  )


def is_https() -> bool:
  """Returns True if the HTTP ports of this process use TLS."""
  return bool(tls.current().cert_file)


def server_context(
  client_certs: ssl.VerifyMode = ssl.CERT_NONE,
) -> ssl.SSLContext | None:
  """Returns the TLS context for a port, or None without TLS.

  The context loads replaced files by itself.

  Args:
    client_certs: The mode for client certificates, which --tls_ca_file
      verifies. Most browsers, the openai package and Kubernetes' probes have
      none.

  Raises:
    InvalidArgument: A file cannot be used.
  """
  settings = tls.current()
  if not settings.cert_file:
    return None
  files = tls.files(settings)
  used: list[tuple[tls.Content, ssl.SSLContext]] = []

  def make(content: tls.Content) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.cert_file, settings.key_file)
    if settings.ca_file and client_certs is not ssl.CERT_NONE:
      context.load_verify_locations(settings.ca_file)
      context.verify_mode = client_certs
    used[:] = [(content, context)]
    return context

  def on_hello(
    connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
  ) -> None:
    """Switches to the newest files at the beginning of each handshake."""
    del name, context
    content = files.newest()
    if content is not used[0][0]:
      try:
        make(content)
      except ssl.SSLError as e:  # Another program is replacing them.
        _logger.error('TLS continues with the old files: %s', e)
    connection.context = used[0][1]

  first = make(files.read())
  first.sni_callback = on_hello
  return first
