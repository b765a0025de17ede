"""A model server: both services, health and reflection on one port."""

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from saxml_ext.common import grpc_util
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.protobuf import modelet_pb2_grpc
from saxml_ext.server import lifecycle
from saxml_ext.server import lm_service
from saxml_ext.server import modelet_service

_SERVICES = ('sax.Modelet', 'sax.server.lm.LMService')
_OPTIONS = (
    # A second server on a taken port would get half of its connections.
    ('grpc.so_reuseport', 0),
    # Calls of clients that went away without a word end half a minute later
    # and give their places back.
    ('grpc.keepalive_time_ms', 20_000),
    ('grpc.keepalive_timeout_ms', 10_000),
    ('grpc.keepalive_permit_without_calls', 1),
)


class ModelServer:
  """Serves models over gRPC; use it on one event loop."""

  def __init__(self, load_fn: lifecycle.LoadFn, port: int):
    """Binds the port.

    Args:
      load_fn: see `lifecycle.Models`.
      port: 0 picks a free one.

    Raises:
      errors.FailedPrecondition: the port is taken.
    """
    self.models = lifecycle.Models(load_fn)
    self._server = grpc.aio.server(options=_OPTIONS)
    self.port = grpc_util.listen(self._server, port)
    self._health = health.aio.HealthServicer()

  async def start(self) -> None:
    """Begins to answer."""
    modelet_pb2_grpc.add_ModeletServicer_to_server(
        modelet_service.ModeletService(self.models), self._server
    )
    lm_pb2_grpc.add_LMServiceServicer_to_server(
        lm_service.LMService(self.models), self._server
    )
    health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
    for name in ('', *_SERVICES):
      await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
    names: Sequence[str] = (
        *_SERVICES,
        health.SERVICE_NAME,
        reflection.SERVICE_NAME,
    )
    reflection.enable_server_reflection(names, self._server)
    await self._server.start()

  async def stop(self, grace: float) -> None:
    """Refuses new calls and gives those in flight `grace` seconds to end."""
    await self._health.enter_graceful_shutdown()
    await self._server.stop(grace)
    self.models.close(drain=False)
