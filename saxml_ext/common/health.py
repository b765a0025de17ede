"""grpc.health.v1 for a server on an event loop."""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc

_Response: TypeAlias = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
  """All services serve, or none; none after the server stopped.

  gRPC's own health service never ends a Watch call. A server that lets calls
  in flight end would wait for it as long as it waits at all.
  """

  def __init__(self, service_names: Sequence[str]):
    """Takes full names, "sax.Admin"; "" stands for the server as a whole."""
    self._names = frozenset(('', *service_names))
    self._stopped = False
    self._serving = True
    self._changed = asyncio.Event()

  @property
  def serving(self) -> bool:
    """Whether it says SERVING."""
    return self._serving

  def set_serving(self, serving: bool) -> None:
    """Says SERVING or NOT_SERVING from now on."""
    if serving != self._serving:
      self._serving = serving
      self._notify()

  def stop(self) -> None:
    """Says NOT_SERVING from now on, and ends what watches."""
    self._serving, self._stopped = False, True
    self._notify()

  def _notify(self) -> None:
    changed, self._changed = self._changed, asyncio.Event()
    changed.set()

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

  async def List(
    self,
    request: health_pb2.HealthListRequest,
    context: grpc.aio.ServicerContext,
  ) -> health_pb2.HealthListResponse:
    """Tells how all services stand."""
    del request, context
    return health_pb2.HealthListResponse(
      statuses={name: self._response(name) for name in self._names}
    )

  async def Watch(
    self,
    request: health_pb2.HealthCheckRequest,
    context: grpc.aio.ServicerContext,
  ) -> None:
    """Tells how a service stands now, and at each change until the end."""
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
