"""A server with threads, for services that a test defines.

The servers of a cell run on an event loop; see grpc_aio.py.
"""

from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_util


class _StatusInterceptor(grpc.ServerInterceptor):
  """Converts a servicer's exception to the status of the call."""

  def __init__(self, wrap_text: bool = False):
    """Sets the format of texts; see `grpc_util.status_of` for `wrap_text`."""
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
    if isinstance(error, errors.SaxError):
      context.set_trailing_metadata(error.trailing_metadata())
    context.abort(*grpc_util.status_of(error, self._wrap_text))

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
  """Makes a server whose servicers may raise `SaxError`.

  Args:
    max_workers: The limit of concurrent calls. Further calls wait.
    wrap_text: True to repeat the code in the text; see `grpc_util.status_of`.
  """
  return grpc.server(
    futures.ThreadPoolExecutor(max_workers, thread_name_prefix='grpc'),
    interceptors=[_StatusInterceptor(wrap_text)],
    options=grpc_util.SERVER_OPTIONS,
  )
