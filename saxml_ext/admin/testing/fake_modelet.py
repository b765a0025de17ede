"""A model server without models, for tests: real gRPC, simulated loads."""

import asyncio

import grpc

from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

# A checkpoint of this name fails to load.
BAD_CHECKPOINT = 'bad'


class FakeModelet(modelet_pb2_grpc.ModeletServicer):
  """Answers like a model server, and records the calls.

  Attributes:
    models: The statuses by model key.
    reasons: The reasons of failures by model key.
    calls: The calls in order, such as "Load key checkpoint".
    gate: An event; loads and unloads wait while it is cleared.
    broken: True if loads must fail.
    memory_bytes: The memory that it announces when it joins.
    hosts: The hosts that it announces when it joins.
    busy: The number of next loads to refuse with RESOURCE_EXHAUSTED.
  """

  def __init__(self, *model_paths: str, port: int = 0):
    self.models: dict[str, int] = {}
    self.reasons: dict[str, str] = {}
    self.calls: list[str] = []
    self.gate = asyncio.Event()
    self.gate.set()
    self.broken = False
    self.memory_bytes = 0
    self.hosts: tuple[str, ...] = ()
    self.busy = 0
    self.paths = model_paths
    self._port = port
    self._server: grpc.aio.Server | None = None

  @property
  def address(self) -> str:
    return f'127.0.0.1:{self._port}'

  @property
  def spec(self) -> admin_pb2.ModelServer:
    return admin_pb2.ModelServer(
      chip_type=admin_pb2.ModelServer.CHIP_TYPE_CPU,
      chip_topology=admin_pb2.ModelServer.CHIP_TOPOLOGY_1,
      servable_model_paths=self.paths,
      memory_bytes=self.memory_bytes,
      hosts=self.hosts,
    )

  async def start(self) -> None:
    """Starts to serve, after a restart on the same port as before."""
    self._server = grpc_aio.make_server()
    self._port = grpc_util.listen(self._server, self._port)
    modelet_pb2_grpc.add_ModeletServicer_to_server(self, self._server)
    await self._server.start()

  async def kill(self) -> None:
    """Stops at once and forgets its models."""
    await self._server.stop(None)
    self.models.clear()

  async def pause(self) -> None:
    """Becomes unreachable, but keeps its models."""
    await self._server.stop(None)

  async def Load(self, request, context):
    self.calls.append(f'Load {request.model_key} {request.checkpoint_path}')
    if self.busy:
      self.busy -= 1
      await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, 'queue is full')
    self.models[request.model_key] = common_pb2.ModelStatus.LOADING
    try:
      await self.gate.wait()
    except asyncio.CancelledError:
      # A real server also continues the load, and only an unload ends it.
      self.calls.append(f'Cancelled {request.model_key}')
      raise
    reason = 'no memory' if self.broken else ''
    if request.checkpoint_path == BAD_CHECKPOINT:
      reason = 'no such checkpoint'
      if self.hosts:
        reason = f'host {self.hosts[-1]}: {reason}'
    if reason:
      self.models[request.model_key] = common_pb2.ModelStatus.FAILED
      self.reasons[request.model_key] = reason
      await context.abort(grpc.StatusCode.INTERNAL, f'Loading error: {reason}')
    self.models[request.model_key] = common_pb2.ModelStatus.LOADED
    return modelet_pb2.LoadResponse()

  async def UpdateLoaded(self, request, context):
    self.calls.append(f'Update {request.model_key} {request.checkpoint_path}')
    if request.model_key not in self.models:
      await context.abort(grpc.StatusCode.NOT_FOUND, request.model_key)
    return modelet_pb2.UpdateLoadedResponse()

  async def Unload(self, request, context):
    self.calls.append(f'Unload {request.model_key}')
    await self.gate.wait()
    if request.model_key not in self.models:
      await context.abort(
        grpc.StatusCode.INVALID_ARGUMENT, f'no model {request.model_key}'
      )
    del self.models[request.model_key]
    return modelet_pb2.UnloadResponse()

  async def GetStatus(self, request, context):
    del context
    response = modelet_pb2.GetStatusResponse()
    for key, status in self.models.items():
      info = response.models.add(model_key=key, model_status=status)
      if request.include_failure_reasons:
        info.failure_reason = self.reasons.get(key, '')
      if (
        request.include_method_stats and status == common_pb2.ModelStatus.LOADED
      ):
        info.method_stats.add(method='lm.score')
        info.method_stats.add(method='lm.generate')
    return response
