"""gRPC for coroutines: channels, the server, and errors as status codes.

The admin server is asynchronous because nearly all of its calls wait: every
client of every model keeps a WatchLoc call open. A waiting call costs a
coroutine here, a thread in gRPC's other server. It also spares us all locks:
whatever the admin server knows belongs to one event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
import functools
from typing import Any

from absl import logging
import grpc

from saxml_ext.common import errors

_CHANNEL_OPTIONS = (
    # Addresses of a cell are reached directly, whatever $http_proxy says.
    ('grpc.enable_http_proxy', 0),
    ('grpc.enable_retries', 0),
    # A model server that was restarted is to be found within a poll or two,
    # gRPC's own pauses go up to 2 minutes.
    ('grpc.initial_reconnect_backoff_ms', 100),
    ('grpc.min_reconnect_backoff_ms', 100),
    ('grpc.max_reconnect_backoff_ms', 400),
    # Admin servers ask all their model servers all the time; a connection
    # each, whoever else in this process talks to the same address.
    ('grpc.use_local_subchannel_pool', 1),
)
_SERVER_OPTIONS = (
    # A second server on a taken port would get half of its connections.
    ('grpc.so_reuseport', 0),
    # Calls of clients that went away without a word (power cut, unplugged
    # network) end half a minute later, or they would wait for ever.
    ('grpc.keepalive_time_ms', 20_000),
    ('grpc.keepalive_timeout_ms', 10_000),
    ('grpc.keepalive_permit_without_calls', 1),
    ('grpc.http2.min_ping_interval_without_data_ms', 5_000),
)

_Handler = Callable[[Any, Any, grpc.aio.ServicerContext], Awaitable[Any]]


class Verbatim(errors.SaxError):
  """An error whose text goes out as it is, without its code."""

  def __init__(self, code: grpc.StatusCode, message: str):
    super().__init__(message)
    self.code = code

  def wire_text(self) -> str:
    return self.message


def insecure_channel(address: str) -> grpc.aio.Channel:
  """A channel to "host:port"; it connects on its first call."""
  return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)


def make_server() -> grpc.aio.Server:
  """A server that notices when its port is taken or its clients vanish."""
  return grpc.aio.server(options=_SERVER_OPTIONS)


def listen(server: grpc.aio.Server, port: int) -> int:
  """Binds a server to a port on every interface.

  Args:
    server: not yet started.
    port: 0 picks a free one.

  Returns:
    The port.

  Raises:
    FailedPrecondition: the port is taken.
  """
  try:
    return server.add_insecure_port(f'[::]:{port}')
  except RuntimeError as e:
    raise errors.FailedPrecondition(
        f'port {port} cannot be listened on ({e}): stop the process that '
        'holds it, or give another --port') from e


def status(handler: _Handler) -> _Handler:
  """Turns what a method of a servicer raises into the status of the call.

  A `SaxError` goes out with its code and, in the text, its code once more, as
  clients of other Sax builds expect. Anything else is a fault of ours: it is
  logged and answered as INTERNAL.
  """

  @functools.wraps(handler)
  async def guarded(
      self: Any, request: Any, context: grpc.aio.ServicerContext) -> Any:
    try:
      return await handler(self, request, context)
    except errors.SaxError as e:
      error = e
    except asyncio.CancelledError:
      raise
    except Exception as e:  # pylint: disable=broad-exception-caught
      logging.exception('unexpected error in %s', handler.__name__)
      error = errors.Internal(f'{type(e).__name__}: {e}')
    await context.abort(error.code, error.wire_text())

  return guarded
