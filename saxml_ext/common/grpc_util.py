"""gRPC servers and channels with the options that a cell needs."""

from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

from absl import logging
import grpc
from grpc_health.v1 import health
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from saxml_ext.common import errors

# Images and long score requests pass gRPC's default of 4 MiB.
_MAX_MESSAGE_BYTES = 64 * 2**20
_SIZE_OPTIONS = (
    ('grpc.max_receive_message_length', _MAX_MESSAGE_BYTES),
    ('grpc.max_send_message_length', _MAX_MESSAGE_BYTES),
)
_SERVER_OPTIONS = _SIZE_OPTIONS + (
    # A second server on a taken port would get half of its connections.
    ('grpc.so_reuseport', 0),
)
_CHANNEL_OPTIONS = _SIZE_OPTIONS + (
    # Addresses of a cell are reached directly, whatever $http_proxy says.
    ('grpc.enable_http_proxy', 0),
    # The caller decides what is tried again.
    ('grpc.enable_retries', 0),
    # gRPC's default of up to 2 minutes hides a server that came back.
    ('grpc.initial_reconnect_backoff_ms', 100),
    ('grpc.min_reconnect_backoff_ms', 100),
    ('grpc.max_reconnect_backoff_ms', 1000),
)


def insecure_channel(address: str) -> grpc.Channel:
  """A channel to "host:port"; it connects on its first call."""
  return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)


def abort(
    context: grpc.ServicerContext, error: Exception, wrap_text: bool = False
) -> None:
  """Ends a call with the status that an error stands for; always raises.

  Args:
    context: of the call.
    error: a `SaxError` is told as it is; anything else becomes INTERNAL, its
      traceback goes to the log.
    wrap_text: repeat the code in the text, as admin servers do.
  """
  if not isinstance(error, errors.SaxError):
    logging.error('unexpected error in a call', exc_info=error)
    error = errors.Internal(f'{type(error).__name__}: {error}')
  context.abort(error.code, error.wire_text() if wrap_text else error.message)


class StatusInterceptor(grpc.ServerInterceptor):
  """Turns what a servicer raises into the status of the call."""

  def __init__(self, wrap_text: bool = False):
    """See `abort` for `wrap_text`."""
    self._wrap_text = wrap_text

  def intercept_service(
      self,
      continuation: Callable[
          [grpc.HandlerCallDetails], grpc.RpcMethodHandler | None
      ],
      handler_call_details: grpc.HandlerCallDetails,
  ) -> grpc.RpcMethodHandler | None:
    handler = continuation(handler_call_details)
    if handler is None or handler.request_streaming:
      return handler
    if handler.response_streaming:
      return grpc.unary_stream_rpc_method_handler(
          self._guard_stream(handler.unary_stream),
          handler.request_deserializer,
          handler.response_serializer,
      )
    return grpc.unary_unary_rpc_method_handler(
        self._guard(handler.unary_unary),
        handler.request_deserializer,
        handler.response_serializer,
    )

  def _fail(self, context: grpc.ServicerContext, error: Exception) -> None:
    if context.code():  # The servicer has aborted the call itself.
      raise error
    abort(context, error, self._wrap_text)

  def _guard(self, method: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(request: Any, context: grpc.ServicerContext) -> Any:
      try:
        return method(request, context)
      except Exception as e:  # pylint: disable=broad-exception-caught
        self._fail(context, e)

    return guarded

  def _guard_stream(self, method: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
      try:
        yield from method(request, context)
      except Exception as e:  # pylint: disable=broad-exception-caught
        self._fail(context, e)

    return guarded


def make_server(max_workers: int, wrap_text: bool = False) -> grpc.Server:
  """A server whose servicers may raise `SaxError`.

  Args:
    max_workers: calls served at once; further ones wait.
    wrap_text: see `abort`.
  """
  return grpc.server(
      futures.ThreadPoolExecutor(max_workers, thread_name_prefix='grpc'),
      interceptors=[StatusInterceptor(wrap_text)],
      options=_SERVER_OPTIONS,
  )


def listen(server: grpc.Server, port: int, host: str = '[::]') -> int:
  """Binds a server to a port.

  Args:
    server: not yet started.
    port: 0 picks a free one.
    host: interface; the default is every one, IPv4 and IPv6.

  Returns:
    The port.

  Raises:
    FailedPrecondition: the port is taken.
  """
  try:
    bound = server.add_insecure_port(f'{host}:{port}')
  except RuntimeError as e:
    raise errors.FailedPrecondition(
        f'port {port} cannot be listened on ({e}): stop the process that '
        'holds it, or give another --port'
    ) from e
  return bound


def add_reflection_and_health(
    server: grpc.Server, service_names: Sequence[str]
) -> health.HealthServicer:
  """Adds server reflection (v1alpha) and grpc.health.v1.

  Args:
    server: not yet started.
    service_names: full names, "sax.Admin".

  Returns:
    The health service; every name and "" stand at SERVING. Call its
    `enter_graceful_shutdown` before the server stops.
  """
  servicer = health.HealthServicer()
  health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
  for name in ('', *service_names):
    servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
  reflection.enable_server_reflection(
      (*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME), server
  )
  return servicer
