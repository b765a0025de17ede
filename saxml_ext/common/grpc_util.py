"""gRPC channels, ports and statuses, with the options that a cell needs.

Servers run on an event loop; see grpc_aio.py.
"""

import errno
import logging
import socket
from typing import TypeAlias

import grpc

from saxml_ext.common import errors
from saxml_ext.common.security import tls

# This is not absl's logger, because every client of a cell would need more time
# to import absl than to import gRPC.
_logger = logging.getLogger(__name__)

Options: TypeAlias = tuple[tuple[str, int | str], ...]

# The limit of an error's text. With larger ones, gRPC reports its own error.
_MAX_TEXT = 4000
# Responses may be large: gradients, pages of models.
_MAX_ANSWER_BYTES = 64 * 2**20
# Long score requests exceed gRPC's default of 4 MiB. The server refuses a
# larger message as RESOURCE_EXHAUSTED by its announced length, before it is
# received.
MAX_REQUEST_BYTES = 16 * 2**20
SERVER_OPTIONS: Options = (
  ('grpc.max_receive_message_length', MAX_REQUEST_BYTES),
  ('grpc.max_send_message_length', _MAX_ANSWER_BYTES),
  # Names, request ids and traces need a tenth of this.
  ('grpc.max_metadata_size', 16 * 2**10),
  ('grpc.absolute_max_metadata_size', 16 * 2**10),
  # The server disconnects a client that does not finish its handshake within
  # this time. gRPC's default is two minutes.
  ('grpc.server_handshake_timeout_ms', 10_000),
  # This is a limit per connection, far above any queue of a model. A model's
  # own limit refuses calls with a reason.
  ('grpc.max_concurrent_streams', 20_000),
  # Otherwise, a second server on a used port would get half of its connections.
  ('grpc.so_reuseport', 0),
)
CHANNEL_OPTIONS: Options = (
  ('grpc.max_receive_message_length', _MAX_ANSWER_BYTES),
  ('grpc.max_send_message_length', _MAX_ANSWER_BYTES),
  # Addresses of a cell are reached directly, even if $http_proxy is set.
  ('grpc.enable_http_proxy', 0),
  # The caller decides which calls to retry.
  ('grpc.enable_retries', 0),
  # gRPC's default of up to 2 minutes hides a server that is back.
  ('grpc.initial_reconnect_backoff_ms', 100),
  ('grpc.min_reconnect_backoff_ms', 100),
  ('grpc.max_reconnect_backoff_ms', 1000),
  # If the other host does not acknowledge data within a second, it is gone.
  # gRPC applies this timeout only to channels with keepalive, so keepalive is
  # on, at the longest interval that servers accept by default.
  ('grpc.keepalive_time_ms', 310_000),
  ('grpc.keepalive_timeout_ms', 1000),
)


def channel(address: str, options: Options = ()) -> grpc.Channel:
  """Makes a channel to "host:port", with TLS if that is set up.

  The channel connects on its first call.

  Args:
    address: The address of the server.
    options: The options that replace or extend `CHANNEL_OPTIONS`.

  Raises:
    InvalidArgument: The TLS settings are invalid.
  """
  credentials = tls.channel_credentials()
  every = channel_options(options)
  if credentials is None:
    return grpc.insecure_channel(address, options=every)
  return grpc.secure_channel(address, credentials, options=every)


def aio_channel(address: str, options: Options = ()) -> grpc.aio.Channel:
  """Makes such a channel for the running event loop; see `channel`."""
  credentials = tls.channel_credentials()
  every = channel_options(options)
  if credentials is None:
    return grpc.aio.insecure_channel(address, options=every)
  return grpc.aio.secure_channel(address, credentials, options=every)


def channel_options(more: Options) -> Options:
  """Returns `CHANNEL_OPTIONS` with the given options and those of TLS."""
  options = {**dict(CHANNEL_OPTIONS), **dict(more)}
  return (*options.items(), *tls.channel_options())


def status_of(
  error: Exception, wrap_text: bool = False
) -> tuple[grpc.StatusCode, str]:
  """Returns the status of a call whose method raised an error.

  Args:
    error: The error. A `SaxError` keeps its code and text. Any other error
      becomes INTERNAL, and its traceback is logged.
    wrap_text: True to repeat the code in the text, as admin servers do; see
      `SaxError.wire_text`.

  Returns:
    The code and the text.
  """
  if not isinstance(error, errors.SaxError):
    _logger.error('unexpected error in a call', exc_info=error)
    error = errors.Internal(f'{type(error).__name__}: {error}')
  text = error.wire_text() if wrap_text else error.message
  if len(text) > _MAX_TEXT:
    # The code is at the end of a wrapped text.
    text = f'{text[: _MAX_TEXT // 2]} ... {text[-_MAX_TEXT // 2 :]}'
  return error.code, text


def listen(
  server: grpc.Server | grpc.aio.Server, port: int, host: str = ''
) -> int:
  """Binds a server to a port, with TLS if that is set up.

  Args:
    server: The server, which is not started yet.
    port: The port. 0 picks a free one.
    host: The address of the interface. '' binds every interface, IPv4 and IPv6.

  Returns:
    The port.

  Raises:
    FailedPrecondition: The port is in use, or the host is not on this machine.
    InvalidArgument: The TLS settings are invalid.
  """
  credentials = tls.server_credentials()
  host = host.strip('[]') or '::'
  # gRPC logs its own lines for a used port, so the port is checked first.
  if port and _is_taken(host, port):
    raise errors.FailedPrecondition(
      f'port {port} is in use by another process. Stop that process, or set'
      ' another --port'
    )
  # `net` has a function for this, but every client would import psutil.
  address = f'[{host}]:{port}' if ':' in host else f'{host}:{port}'
  try:
    if credentials is None:
      return server.add_insecure_port(address)
    return server.add_secure_port(address, credentials)
  except RuntimeError as e:
    raise errors.FailedPrecondition(
      f'cannot listen on {address} ({e}). Stop the process that uses the'
      ' port, set another --port, or set --host to the address of an'
      ' interface of this machine'
    ) from e


def _is_taken(host: str, port: int) -> bool:
  """Returns True if another socket listens on a port.

  All other problems are left to gRPC.
  """
  try:
    family, kind, protocol, _, address = socket.getaddrinfo(
      host, port, type=socket.SOCK_STREAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
      # Connections of an earlier process that are closing do not use the port.
      probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      if family == socket.AF_INET6:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
      probe.bind(address)
  except OSError as e:
    return e.errno == errno.EADDRINUSE
  return False
