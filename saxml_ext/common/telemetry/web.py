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
from saxml_ext.common.telemetry import sockets

# A client that takes longer to send a header is not a browser.
_HEADER_SECS = 10.0
# By default, requests in flight may take this long when the server stops, and
# connections without a request are closed after this time.
_GRACE_SECS, _KEEP_ALIVE_SECS = 1.0, 5.0
_MAX_HEADER_BYTES = 16 * 2**10
# These are the limits for one client and for all. A browser opens 6 connections.
_MOST_PER_CLIENT, _MOST = 128, 512
# asyncio accepts this many connections before it lets the server count them.
_ACCEPTED_AT_ONCE = 16
# A client that shut down its side for sending may still read. This is the time
# until the first probe shows whether it does; each further one takes twice that.
_PROBE_SECS = 0.5
# A client may use all IPv6 addresses with the same leading bits.
_CLIENT_BITS = 64
_END_OF_HEADER = re.compile(rb'\n\r?\n')
_LENIENT = re.compile(rb'(?<!\r)\n|\n[ \t]')
_logger = logging.getLogger(__name__)


class _Connection(h11.Connection):
  """Rejects requests that proxies may misread (RFC 9112, 2.2, 5.2 and 6.1).

  Attributes:
    has_other_version: True if a request had another major version of HTTP.
  """

  has_other_version = False

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
      if not event.http_version.startswith(b'1.'):
        self.has_other_version = True
        raise h11.RemoteProtocolError('the version of HTTP is not 1')
    return event


class _Config(uvicorn.Config):
  """Uvicorn's settings, with the limits of connections and their clients.

  Attributes:
    most_per_client: The maximum number of connections per client.
    most: The maximum number of connections.
    clients: The connections of each client, oldest first.
  """

  most_per_client = _MOST_PER_CLIENT
  most = _MOST
  clients: dict[str, dict['_Protocol', None]]

  def make_room(self, new: '_Protocol | None' = None) -> bool:
    """Closes the oldest idle connection of the client with most.

    Args:
      new: The connection that needs the room; it stays open.

    Returns:
      False if no other connection is idle.
    """
    for mine in sorted(self.clients.values(), key=len, reverse=True):
      for connection in mine:
        if connection.is_idle and connection is not new:
          connection.hang_up()
          return True
    return False


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
    certificate = connection.getpeercert() if connection else None
    self.app_state: dict[str, Any] = {
      **self.app_state,
      'peer_certificate': certificate or {},
    }
    self._header_timer = self.loop.call_later(_HEADER_SECS, self.hang_up)
    address = self.client[0] if self.client else ''
    self._group = _group(address)
    mine = self.config.clients.setdefault(self._group, {})
    most = self.config.most_per_client
    if len(mine) >= most:
      self._refuse(
        '429 Too Many Requests',
        f'{address} has {most} connections, which is the limit for one client.'
        ' Close some, or reuse them.',
      )
      return
    mine[self] = None
    count = sum(map(len, self.config.clients.values()))
    if count > self.config.most and not self.config.make_room(self):
      self._unregister()
      self._refuse(
        '503 Service Unavailable',
        f'All {self.config.most} connections of this server are in use. Try'
        ' again soon.',
      )

  @property
  def is_idle(self) -> bool:
    """True if no whole request waits for its answer."""
    cycle = self.cycle
    return cycle is None or cycle.response_complete or cycle.more_body

  def _unregister(self) -> None:
    mine = self.config.clients.get(self._group, {})
    mine.pop(self, None)
    if not mine:
      self.config.clients.pop(self._group, None)

  def data_received(self, data: bytes) -> None:
    super().data_received(data)
    self._watch_header()

  def connection_lost(self, exc: Exception | None) -> None:
    super().connection_lost(exc)
    self._stop_timer()
    self._unregister()

  def eof_received(self) -> bool | None:
    """Keeps the connection if a whole request waits for its answer."""
    if self.is_idle or self.scheme == 'https':
      return None
    self.cycle.keep_alive = False
    self.loop.call_later(_PROBE_SECS, self._probe, _PROBE_SECS)
    return True

  def _probe(self, secs: float) -> None:
    """Sends what every client skips; a client that is gone resets it."""
    if self.transport.is_closing() or self.cycle.response_started:
      return  # The answer itself is a probe.
    if self.scope['http_version'] == '1.0':
      self.hang_up()
    else:
      self.transport.write(b'HTTP/1.1 100 Continue\r\n\r\n')
      self.loop.call_later(2 * secs, self._probe, 2 * secs)

  def send_400_response(self, msg: str) -> None:
    if self.conn.has_other_version:
      self._refuse(
        '505 HTTP Version Not Supported', 'This server has HTTP/1.1 and 1.0.'
      )
    else:
      super().send_400_response(msg)

  def _watch_header(self) -> None:
    """Starts the timeout at a header's first byte, and stops it at the last."""
    if self.conn.is_owed:
      if self._header_timer is None:
        self._header_timer = self.loop.call_later(_HEADER_SECS, self.hang_up)
    elif self.conn.their_state is not h11.IDLE:
      self._stop_timer()

  def _stop_timer(self) -> None:
    if self._header_timer:
      self._header_timer.cancel()
      self._header_timer = None

  def hang_up(self) -> None:
    """Closes the connection, which stops to count at once."""
    self._unregister()
    if not self.transport.is_closing():
      self.transport.close()

  def _refuse(self, status: str, text: str) -> None:
    retry = '' if status.startswith('505') else 'retry-after: 1\r\n'
    self.transport.write(
      f'HTTP/1.1 {status}\r\nconnection: close\r\n'
      f'content-type: text/plain\r\n{retry}'
      f'content-length: {len(text) + 1}\r\n\r\n{text}\n'.encode()
    )
    self.transport.close()


def _group(address: str) -> str:
  """Returns the key of a client: its IPv4 address, or its IPv6 network."""
  try:
    parsed = ipaddress.ip_address(address.partition('%')[0])
  except ValueError:
    return address
  mapped = getattr(parsed, 'ipv4_mapped', None)
  if parsed.version == 4 or mapped:
    return str(mapped or parsed)
  return str(ipaddress.ip_network((int(parsed), _CLIENT_BITS), strict=False))


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
    most: int = _MOST,
  ) -> None:
    """Does nothing before `start`.

    Args:
      app: The ASGI application.
      tls: The TLS context; with it, the server accepts HTTPS only.
      grace_secs: The time that `stop` gives to requests in flight.
      keep_alive_secs: The time that a connection may stay open without a
        request.
      most_per_client: The limit of connections per client address.
      most: The limit of connections. It is lowered to what the limit of open
        files allows; see `sockets`.
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
      backlog=_ACCEPTED_AT_ONCE,
    )
    self._config.most_per_client = most_per_client
    self._config.most = sockets.most_connections(most)
    self._config.clients = {}
    self._config.load()
    self._config.ssl = tls
    self._server = _Server(self._config)
    self._task: asyncio.Task[None] | None = None
    self._has_accept_error = False

  async def start(
    self,
    port: int,
    host: str = '127.0.0.1',
    listener: socket.socket | None = None,
  ) -> None:
    """Starts to listen, and returns when the port accepts connections.

    Args:
      port: The port. 0 picks a free one.
      host: The address of the interface. '' is every interface.
      listener: The socket that listens already; None makes one.

    Raises:
      OSError: The port is in use, or there is no such interface.
    """
    listener = listener or sockets.listen(host, port)
    self.port = listener.getsockname()[1]
    asyncio.get_running_loop().set_exception_handler(self._on_error)
    self._task = asyncio.create_task(self._server.serve([listener]))
    while not self._server.started and not self._task.done():
      await asyncio.sleep(0.001)
    if self._task.done():
      self._task.result()
    # Uvicorn's backlog is also the number of connections accepted at once.
    listener.listen(sockets.MOST_WAITING)

  def _on_error(
    self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]
  ) -> None:
    """Logs only the first error of accepting connections."""
    if 'accept' not in context['message']:
      loop.default_exception_handler(context)
      return
    for _ in range(_ACCEPTED_AT_ONCE):
      self._config.make_room()
    if not self._has_accept_error:
      _logger.error(
        'Connections cannot be accepted: %s. Idle ones are closed. Raise the'
        ' limit of open files (ulimit -n). This is logged once.',
        context.get('exception'),
      )
    self._has_accept_error = True

  async def stop(self) -> None:
    """Finishes the requests in flight, within the grace period."""
    self._server.should_exit = True
    if self._task:
      await self._task


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
