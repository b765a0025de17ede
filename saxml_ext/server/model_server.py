"""A model server: its services, health and reflection on one port."""

from collections.abc import Callable

from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common import net
from saxml_ext.protobuf import completion_pb2_grpc
from saxml_ext.protobuf import lm_pb2_grpc
from saxml_ext.protobuf import modelet_pb2_grpc
from saxml_ext.server.completion import completion_service
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable
from saxml_ext.server.services import lm_service
from saxml_ext.server.services import modelet_service

_SERVICES = (
  'sax.Modelet',
  'sax.completion.Completion',
  'sax.server.lm.LMService',
)


class ModelServer:
  """Serves models over gRPC; use it on one event loop.

  Attributes:
    models: The models of this server.
    port: The port that it listens on.
    address: The "host:port" under which clients reach it.
  """

  def __init__(
    self,
    load_fn: lifecycle.LoadFn[servable.Servable],
    port: int,
    host: str = '',
    *,
    has_room: Callable[[entry_lib.Spec], bool] = lambda spec: False,
    early_reject: bool = False,
    keep_static: bool = False,
  ):
    """Binds the port.

    Args:
      load_fn: A function that loads a model, see `lifecycle.Models`.
      port: The port to listen on; 0 picks a free one.
      host: The address that the port is on; '' stands for all interfaces.
      has_room: A function that checks memory, see `lifecycle.Models`.
      early_reject: True if requests are refused once the server was asked to
        stop, so that clients use another server at once.
      keep_static: True if no models are loaded after the start.

    Raises:
      errors.FailedPrecondition: The port is in use.
    """
    self.models = lifecycle.Models(
      load_fn, has_room, entry_lib.Dormancy(early_reject)
    )
    self._started = False
    self._server = grpc_aio.make_server()
    self.port = grpc_util.listen(self._server, port, host)
    self.address = net.advertised_address(self.port, host)
    self._health = grpc_aio.add_reflection_and_health(self._server, _SERVICES)
    self._modelet = modelet_service.ModeletService(self.models, keep_static)

  async def start(self) -> None:
    """Starts to answer calls."""
    modelet_pb2_grpc.add_ModeletServicer_to_server(self._modelet, self._server)
    lm_pb2_grpc.add_LMServiceServicer_to_server(
      lm_service.LMService(self.models), self._server
    )
    completion_pb2_grpc.add_CompletionServicer_to_server(
      completion_service.CompletionService(self.models), self._server
    )
    await self._server.start()
    self._started = True

  @property
  def serves(self) -> bool:
    """True if the server has started and is not stopping."""
    return self._started and self._health.serving

  def announce_stop(self, reason: str) -> None:
    """Makes the server dormant; it may still answer requests."""
    self.models.dormancy.begin(reason)
    self._health.stop()

  async def stop(self, grace: float) -> None:
    """Refuses new calls and gives those in flight `grace` seconds to end.

    It waits only for clients of models. Calls that wait for a load, or watch
    this server's health, end at once.
    """
    self._health.stop()
    self._modelet.stop()
    await self._server.stop(grace)
    self.models.close(drain=False)
