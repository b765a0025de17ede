"""gRPC on an event loop, for the admin server and the model servers.

Both servers are asynchronous because nearly all of their calls wait for a
change of addresses or for the engine. A waiting call costs a coroutine here and
a thread in gRPC's other server. An event loop also avoids locks, because all of
its state belongs to one thread.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
import contextlib
import functools
import inspect
from typing import Any, TypeAlias

from google.protobuf import message as message_lib
import grpc
from grpc_health.v1 import health as health_lib
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from saxml_ext.common import errors
from saxml_ext.common import grpc_util
from saxml_ext.common.telemetry import traced_calls

_SERVER_OPTIONS = grpc_util.SERVER_OPTIONS + (
  # A client may vanish without closing its connection, for example after a
  # power failure. Its calls end half a minute later instead of waiting forever.
  ('grpc.keepalive_time_ms', 20_000),
  ('grpc.keepalive_timeout_ms', 10_000),
  ('grpc.keepalive_permit_without_calls', 1),
  # Clients may ping as often as this server does. gRPC's default minimum of 5
  # minutes would treat them as attackers and close the connection.
  ('grpc.http2.min_ping_interval_without_data_ms', 5_000),
  # A burst of calls is accepted one by one. By default, gRPC cancels some of
  # the pending calls at random above 1,000, and all of them above 3,000. Here
  # the limit of a model's queue refuses calls instead, with a reason.
  ('grpc.server.max_pending_requests', 1_000_000),
  ('grpc.server.max_pending_requests_hard_limit', 1_000_000),
  # By default, gRPC delays the error for a message that is too large by up to a
  # second, to slow attackers down. Such a message uses no memory here, and
  # users need the error at once.
  ('grpc.http.tarpit', 0),
)
_CHANNEL_OPTIONS = (
  # Servers of a cell poll each other all the time. A restarted server must be
  # found within one or two polls.
  ('grpc.max_reconnect_backoff_ms', 400),
  # Each channel has its own connection, even if another channel of this process
  # uses the same address.
  ('grpc.use_local_subchannel_pool', 1),
)

_Context: TypeAlias = grpc.aio.ServicerContext
_Method = Callable[[Any, Any, _Context], Awaitable[Any]]
_Response: TypeAlias = health_pb2.HealthCheckResponse


class Verbatim(errors.SaxError):
  """An error whose text is sent unchanged, even by servers that wrap texts."""

  def __init__(self, code: grpc.StatusCode, message: str):
    super().__init__(message)
    self.code = code

  def wire_text(self) -> str:
    return self.message


def channel(address: str) -> grpc.aio.Channel:
  """Makes a channel between servers of a cell; see `grpc_util.channel`."""
  return grpc_util.aio_channel(address, _CHANNEL_OPTIONS)


def make_server(
  max_request_bytes: int = grpc_util.MAX_REQUEST_BYTES,
) -> grpc.aio.Server:
  """Makes a server that detects a used port and vanished clients.

  Decorate the methods of its services with `method`, and bind it with
  `grpc_util.listen`. The server refuses a malformed request as
  INVALID_ARGUMENT. gRPC's own server would report UNKNOWN with the name of a
  Python class.

  Args:
    max_request_bytes: The size limit of a request. A larger one is refused as
      RESOURCE_EXHAUSTED before it is parsed. Parsing blocks all other calls,
      because protobuf holds Python's lock on any thread.
  """
  server = grpc.aio.server(options=_SERVER_OPTIONS)
  register = server.add_registered_method_handlers

  def add(
    service_name: str, method_handlers: dict[str, grpc.RpcMethodHandler]
  ) -> None:
    checked = {
      name: _checked(handler, max_request_bytes)
      for name, handler in method_handlers.items()
    }
    register(service_name, checked)

  server.add_registered_method_handlers = add
  # Generated code also registers the same methods by their names.
  server.add_generic_rpc_handlers = lambda generic_rpc_handlers: None
  return server


class _Refusal:
  """Replaces a request that was not parsed."""

  def __init__(self, code: grpc.StatusCode, text: str):
    self._code = code
    self._text = text

  async def refuse(self, context: _Context) -> None:
    """Ends the call with the error."""
    await context.abort(self._code, self._text)


def _checked(
  handler: grpc.RpcMethodHandler, most: int
) -> grpc.RpcMethodHandler:
  """Returns the handler, with checks for malformed and too large requests."""
  function = _function(handler)
  if not (
    inspect.iscoroutinefunction(function)
    or inspect.isasyncgenfunction(function)
  ):
    # Generated code puts this placeholder in place of a missing method. It
    # would raise, and each call would log a traceback.
    return grpc.unary_unary_rpc_method_handler(_not_there)
  read = handler.request_deserializer

  def deserialize(data: bytes) -> Any:
    if len(data) > most:
      return _Refusal(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f'the request has {len(data)} bytes, more than the limit of {most}.'
        ' Send less at once, for example fewer overrides of a model',
      )
    try:
      return read(data)
    except message_lib.DecodeError as e:
      return _Refusal(
        grpc.StatusCode.INVALID_ARGUMENT,
        f'the request is not a message of its type ({e}). Was the client'
        ' built from the same .proto files?',
      )

  if handler.request_streaming:
    if not handler.response_streaming:
      raise NotImplementedError('streams with one answer are not supported')
    if not inspect.isasyncgenfunction(function):
      return handler  # It reads from its context.
    return grpc.stream_stream_rpc_method_handler(
      _checked_stream(function), deserialize, handler.response_serializer
    )
  if handler.response_streaming:
    return grpc.unary_stream_rpc_method_handler(
      _checked_source(function), deserialize, handler.response_serializer
    )
  return grpc.unary_unary_rpc_method_handler(
    _checked_call(function), deserialize, handler.response_serializer
  )


def _function(handler: grpc.RpcMethodHandler) -> Callable[..., Any]:
  return (
    handler.unary_unary
    or handler.unary_stream
    or handler.stream_unary
    or handler.stream_stream
  )


async def _not_there(unused_request: bytes, context: _Context) -> None:
  await context.abort(
    grpc.StatusCode.UNIMPLEMENTED, 'this server does not have this method'
  )


def _checked_call(function: Callable[..., Any]) -> Callable[..., Any]:
  async def call(request: Any, context: _Context) -> Any:
    if isinstance(request, _Refusal):
      await request.refuse(context)
    return await function(request, context)

  return call


def _checked_source(function: Callable[..., Any]) -> Callable[..., Any]:
  """Adds the checks to a method that yields its responses or writes them."""
  if not inspect.isasyncgenfunction(function):
    return _checked_call(function)

  async def call(request: Any, context: _Context) -> AsyncIterator[Any]:
    if isinstance(request, _Refusal):
      await request.refuse(context)
    async with contextlib.aclosing(function(request, context)) as answers:
      async for answer in answers:
        yield answer

  return call


def _checked_stream(function: Callable[..., Any]) -> Callable[..., Any]:
  async def checked(
    requests: AsyncIterator[Any], context: _Context
  ) -> AsyncIterator[Any]:
    async for request in requests:
      if isinstance(request, _Refusal):
        await request.refuse(context)
      yield request

  async def call(
    requests: AsyncIterator[Any], context: _Context
  ) -> AsyncIterator[Any]:
    answers = function(checked(requests, context), context)
    async with contextlib.aclosing(answers):
      async for answer in answers:
        yield answer

  return call


def method(wrap_text: bool = False) -> Callable[[_Method], _Method]:
  """Returns the decorator for the coroutine methods of a servicer.

  An exception of the method becomes the status of the call; see
  `grpc_util.status_of`. This is a decorator and not an interceptor, because
  grpc.aio runs interceptors on every call as separate tasks.

  Args:
    wrap_text: True to repeat the code in the text; see `grpc_util.status_of`.
  """

  def decorate(function: _Method) -> _Method:
    @functools.wraps(function)
    async def guarded(self: Any, request: Any, context: _Context) -> Any:
      with traced_calls.Served(request, context, function.__name__) as call:
        try:
          response = await function(self, request, context)
          call.succeeded()
          return response
        except grpc.aio.AbortError:  # The method has aborted the call itself.
          call.aborted()
          raise
        except Exception as e:  # pylint: disable=broad-exception-caught
          code, text = grpc_util.status_of(e, wrap_text)
          call.failed(code, text)
          metadata = call.trailing_metadata
          if isinstance(e, errors.SaxError):
            metadata += e.trailing_metadata()
      # The call is counted before it is answered, because the client may read
      # the counters at once.
      await context.abort(code, text, metadata)

    return guarded

  return decorate


class Health(health_pb2_grpc.HealthServicer):
  """Reports the same health for all services: serving, or not serving.

  Unlike gRPC's own health service, this one ends Watch calls when it stops.
  They would otherwise use up the time that a stopping server gives to calls in
  flight.
  """

  def __init__(self, service_names: Sequence[str]):
    """Starts with all services serving.

    Args:
      service_names: The full names, such as "sax.Admin". The name "" for the
        whole server is added.
    """
    self._names = frozenset(('', *service_names))
    self._stopped = False
    self._serving = True
    self._changed = asyncio.Event()

  @property
  def serving(self) -> bool:
    """True if the services report SERVING."""
    return self._serving

  def set_serving(self, serving: bool) -> None:
    """Reports SERVING or NOT_SERVING from now on."""
    if serving != self._serving:
      self._serving = serving
      self._notify()

  def stop(self) -> None:
    """Reports NOT_SERVING from now on, and ends all Watch calls."""
    self._serving, self._stopped = False, True
    self._notify()

  def _notify(self) -> None:
    changed, self._changed = self._changed, asyncio.Event()
    changed.set()

  async def Check(
    self, request: health_pb2.HealthCheckRequest, context: _Context
  ) -> _Response:
    """Returns the health of a service, or NOT_FOUND if it is not here."""
    if request.service not in self._names:
      await context.abort(
        grpc.StatusCode.NOT_FOUND,
        f'service {request.service!r} does not exist. Available: '
        + ', '.join(sorted(self._names - {''})),
      )
    return self._response(request.service)

  async def List(
    self, request: health_pb2.HealthListRequest, context: _Context
  ) -> health_pb2.HealthListResponse:
    """Returns the health of all services."""
    del request, context
    return health_pb2.HealthListResponse(
      statuses={name: self._response(name) for name in self._names}
    )

  async def Watch(
    self, request: health_pb2.HealthCheckRequest, context: _Context
  ) -> None:
    """Sends the health of a service now and at each change until the end."""
    while not self._stopped:
      changed = self._changed
      await context.write(self._response(request.service))
      await changed.wait()
    await context.write(self._response(request.service))

  def _response(self, name: str) -> _Response:
    if name not in self._names:
      return _Response(status=_Response.SERVICE_UNKNOWN)
    if not self._serving:
      return _Response(status=_Response.NOT_SERVING)
    return _Response(status=_Response.SERVING)


def add_reflection_and_health(
  server: grpc.aio.Server, service_names: Sequence[str]
) -> Health:
  """Adds server reflection (v1alpha) and grpc.health.v1.

  Args:
    server: The server, which is not started yet.
    service_names: The full names of the services, such as "sax.Admin".

  Returns:
    The health service. Call its `stop` before the server stops.
  """
  names = (*service_names, health_lib.SERVICE_NAME, reflection.SERVICE_NAME)
  servicer = Health(names)
  health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
  reflection.enable_server_reflection(names, server)
  return servicer
