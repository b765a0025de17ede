"""gRPC with the options that a cell needs: channels, ports, statuses.

Servers run on an event loop, see grpc_aio.py.
"""

import errno
import logging
import socket
from typing import TypeAlias

import grpc

from saxml_ext.common import errors
from saxml_ext.common.security import tls

# Not absl's, which takes every client of a cell longer to import than gRPC.
_logger = logging.getLogger(__name__)

Options: TypeAlias = tuple[tuple[str, int | str], ...]

# What servers answer may be large: gradients, pages of models.
_MAX_ANSWER_BYTES = 64 * 2**20
# Long score requests pass gRPC's default of 4 MiB. A larger message is refused
# as RESOURCE_EXHAUSTED by the length it announces, before it is received.
MAX_REQUEST_BYTES = 16 * 2**20
SERVER_OPTIONS: Options = (
  ('grpc.max_receive_message_length', MAX_REQUEST_BYTES),
  ('grpc.max_send_message_length', _MAX_ANSWER_BYTES),
  # Names, request ids, traces: a tenth of this.
  ('grpc.max_metadata_size', 16 * 2**10),
  ('grpc.absolute_max_metadata_size', 16 * 2**10),
  # Whoever connects and then says nothing, or stops within a handshake, is cut
  # off after this time; gRPC's default is two minutes.
  ('grpc.server_handshake_timeout_ms', 10_000),
  # Calls of one connection. Far above any queue of models, whose own bound is
  # what refuses calls with a reason; but a bound.
  ('grpc.max_concurrent_streams', 20_000),
  # A second server on a taken port would get half of its connections.
  ('grpc.so_reuseport', 0),
)
CHANNEL_OPTIONS: Options = (
  ('grpc.max_receive_message_length', _MAX_ANSWER_BYTES),
  ('grpc.max_send_message_length', _MAX_ANSWER_BYTES),
  # Addresses of a cell are reached directly, whatever $http_proxy says.
  ('grpc.enable_http_proxy', 0),
  # The caller decides what is tried again.
  ('grpc.enable_retries', 0),
  # gRPC's default of up to 2 minutes hides a server that came back.
  ('grpc.initial_reconnect_backoff_ms', 100),
  ('grpc.min_reconnect_backoff_ms', 100),
  ('grpc.max_reconnect_backoff_ms', 1000),
  # What the other end's kernel does not acknowledge within a second was sent
  # to a host that is gone. gRPC has this for channels that ping; so they do,
  # as rarely as servers with gRPC's defaults want it.
  ('grpc.keepalive_time_ms', 310_000),
  ('grpc.keepalive_timeout_ms', 1000),
)


def channel(address: str, options: Options = ()) -> grpc.Channel:
  """A channel to "host:port", with TLS if that is set up.

  It connects on its first call.

  Args:
    address: of the server.
    options: that replace or join `CHANNEL_OPTIONS`.

  Raises:
    InvalidArgument: TLS is set up wrongly.
  """
  credentials = tls.channel_credentials()
  every = channel_options(options)
  if credentials is None:
    return grpc.insecure_channel(address, options=every)
  return grpc.secure_channel(address, credentials, options=every)


def aio_channel(address: str, options: Options = ()) -> grpc.aio.Channel:
  """The same for the running event loop."""
  credentials = tls.channel_credentials()
  every = channel_options(options)
  if credentials is None:
    return grpc.aio.insecure_channel(address, options=every)
  return grpc.aio.secure_channel(address, credentials, options=every)


def channel_options(more: Options) -> Options:
  """`CHANNEL_OPTIONS` with some replaced or added, and those of TLS."""
  options = {**dict(CHANNEL_OPTIONS), **dict(more)}
  return (*options.items(), *tls.channel_options())


def status_of(
  error: Exception, wrap_text: bool = False
) -> tuple[grpc.StatusCode, str]:
  """The status that a call ends with, when its method raised an error.

  Args:
    error: a `SaxError` is told as it is; anything else becomes INTERNAL, its
      traceback goes to the log.
    wrap_text: repeat the code in the text, as admin servers do; see
      `SaxError.wire_text`.

  Returns:
    The code and the text.
  """
  if not isinstance(error, errors.SaxError):
    _logger.error('unexpected error in a call', exc_info=error)
    error = errors.Internal(f'{type(error).__name__}: {error}')
  return error.code, error.wire_text() if wrap_text else error.message


def listen(
  server: grpc.Server | grpc.aio.Server, port: int, host: str = ''
) -> int:
  """Binds a server to a port, which speaks TLS if that is set up.

  Args:
    server: not yet started.
    port: 0 picks a free one.
    host: interface; '' is every one, IPv4 and IPv6.

  Returns:
    The port.

  Raises:
    FailedPrecondition: the port is taken, or the host is not this machine's.
    InvalidArgument: TLS is set up wrongly.
  """
  credentials = tls.server_credentials()
  host = host.strip('[]') or '::'
  # gRPC logs lines of its own for a port that is taken; so look before.
  if port and _is_taken(host, port):
    raise errors.FailedPrecondition(
      f'port {port} cannot be listened on, as another process does: stop the '
      'process that holds it, or give another --port'
    )
  # `net` would have every client import psutil.
  address = f'[{host}]:{port}' if ':' in host else f'{host}:{port}'
  try:
    if credentials is None:
      return server.add_insecure_port(address)
    return server.add_secure_port(address, credentials)
  except RuntimeError as e:
    raise errors.FailedPrecondition(
      f'{address} cannot be listened on ({e}): stop the process that holds'
      ' the port, give another --port, or give the address of an interface'
      ' of this machine as --host'
    ) from e


def _is_taken(host: str, port: int) -> bool:
  """Whether somebody listens on a port; all else is left to gRPC."""
  try:
    family, kind, protocol, _, address = socket.getaddrinfo(
      host, port, type=socket.SOCK_STREAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
      # Not by connections of an earlier process that are being wound up.
      probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      if family == socket.AF_INET6:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
      probe.bind(address)
  except OSError as e:
    return e.errno == errno.EADDRINUSE
  return False
