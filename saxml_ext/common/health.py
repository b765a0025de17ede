"""grpc.health.v1 for a server on an event loop."""

import asyncio
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc

_Response = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
  """All services serve until the server stops.

  gRPC's own health service never ends a Watch call. A server that lets calls
  in flight end would wait for it as long as it waits at all.
  """

  def __init__(self, service_names: Sequence[str]):
    """Takes full names, "sax.Admin"; "" stands for the server as a whole."""
    self._names = frozenset(('', *service_names))
    self._stopping = asyncio.Event()

  def stop(self) -> None:
    """Says NOT_SERVING from now on, and ends what watches."""
    self._stopping.set()

  async def Check(
      self,
      request: health_pb2.HealthCheckRequest,
      context: grpc.aio.ServicerContext,
  ) -> _Response:
    """Tells how a service stands; NOT_FOUND for one that is not here."""
    if request.service not in self._names:
      await context.abort(
          grpc.StatusCode.NOT_FOUND,
          f'service {request.service!r} is not here; there are: '
          + ', '.join(sorted(self._names - {''})),
      )
    return self._response(request.service)

  async def Watch(
      self,
      request: health_pb2.HealthCheckRequest,
      context: grpc.aio.ServicerContext,
  ) -> None:
    """Tells how a service stands now, and once more when the server stops."""
    if not self._stopping.is_set():
      await context.write(self._response(request.service))
      await self._stopping.wait()
    await context.write(self._response(request.service))

  def _response(self, name: str) -> _Response:
    if name not in self._names:
      return _Response(status=_Response.SERVICE_UNKNOWN)
    if self._stopping.is_set():
      return _Response(status=_Response.NOT_SERVING)
    return _Response(status=_Response.SERVING)
