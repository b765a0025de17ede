"""The control service of a model server, called by its cell's admin server."""

import asyncio
import collections
from concurrent import futures
from typing import TypeAlias

from absl import logging
import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common.security import access
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable
from saxml_ext.server.scheduling import stats

_STATUS = {
  lifecycle.State.LOADING: common_pb2.LOADING,
  lifecycle.State.LOADED: common_pb2.LOADED,
  lifecycle.State.FAILED: common_pb2.FAILED,
  lifecycle.State.UNLOADING: common_pb2.UNLOADING,
}
_NONE: collections.Counter[str] = collections.Counter()
_Context: TypeAlias = grpc.aio.ServicerContext
_ServerStatus = modelet_pb2.GetStatusResponse.ServerStatus


class ModeletService(modelet_pb2_grpc.ModeletServicer):
  """Serves sax.Modelet with the models of this server."""

  def __init__(
    self, models: lifecycle.Models[servable.Servable], keep_static: bool = False
  ):
    """Creates the service; call this on the event loop that will serve.

    Args:
      models: The models of this server.
      keep_static: True if the loaded models never change. Then a call that
        would load, replace or unload a model fails with UNAVAILABLE.
    """
    self._models = models
    self._keep_static = keep_static
    self._stopping = asyncio.Event()

  def stop(self) -> None:
    """Ends calls that wait for a load or an unload, with UNAVAILABLE."""
    self._stopping.set()

  @grpc_aio.method()
  async def Load(
    self, request: modelet_pb2.LoadRequest, context: _Context
  ) -> modelet_pb2.LoadResponse:
    """Loads a model; returns when it serves or has failed."""
    access.check_server(context, 'Load')
    if request.model_key not in self._models.entries():
      self._check_static('Load')
    spec = entry_lib.Spec.from_request(request)
    await self._wait(self._models.load(request.model_key, spec))
    return modelet_pb2.LoadResponse()

  @grpc_aio.method()
  async def UpdateLoaded(
    self, request: modelet_pb2.UpdateLoadedRequest, context: _Context
  ) -> modelet_pb2.UpdateLoadedResponse:
    """Replaces ACLs, and also the weights if their path has changed.

    An admin server sends this call for every change of a published model,
    including changes of its replicas. The call always has a path and ACLs.
    """
    access.check_server(context, 'UpdateLoaded')
    if not request.model_key:
      raise errors.InvalidArgument('model_key is empty. Set it to a model id.')
    if request.HasField('acls'):
      self._models.set_acls(request.model_key, request.acls.items)
    if request.checkpoint_path:
      entry = self._models.entries().get(request.model_key)
      if entry and entry.spec.checkpoint_path != request.checkpoint_path:
        self._check_static('UpdateLoaded')
      await self._wait(
        self._models.reload(request.model_key, request.checkpoint_path)
      )
    return modelet_pb2.UpdateLoadedResponse()

  @grpc_aio.method()
  async def Unload(
    self, request: modelet_pb2.UnloadRequest, context: _Context
  ) -> modelet_pb2.UnloadResponse:
    """Unloads a model after it has answered its pending requests."""
    access.check_server(context, 'Unload')
    self._check_static('Unload')
    await self._wait(self._models.unload(request.model_key))
    return modelet_pb2.UnloadResponse()

  @grpc_aio.method()
  async def Export(
    self, request: modelet_pb2.ExportRequest, context: _Context
  ) -> modelet_pb2.ExportResponse:
    """Refuses the call, because models cannot be exported."""
    access.check_server(context, 'Export')
    raise errors.Unimplemented(
      'this model server cannot export models. Serve from the checkpoint.'
    )

  @grpc_aio.method()
  async def Save(
    self, request: modelet_pb2.SaveRequest, context: _Context
  ) -> modelet_pb2.SaveResponse:
    """Refuses to save a loaded model, because serving does not change weights.

    As in Sax, a model that is not loaded is not an error.
    """
    access.check_server(context, 'Save')
    if request.model_key not in self._models.entries():
      logging.warning('save: %r is not loaded here', request.model_key)
      return modelet_pb2.SaveResponse()
    raise errors.Unimplemented(
      f'{request.model_key} cannot be saved, because serving does not change'
      ' its weights. Copy the checkpoint that it was published with.'
    )

  @grpc_aio.method()
  async def WakeUp(
    self, request: modelet_pb2.WakeUpRequest, context: _Context
  ) -> modelet_pb2.WakeUpResponse:
    """Does nothing, because only a server that is stopping is dormant."""
    access.check_server(context, 'WakeUp')
    return modelet_pb2.WakeUpResponse()

  @grpc_aio.method()
  async def GetStatus(
    self, request: modelet_pb2.GetStatusRequest, context: _Context
  ) -> modelet_pb2.GetStatusResponse:
    """Returns the state of the server and of each model."""
    dormancy = self._models.dormancy
    why = dormancy.reason
    response = modelet_pb2.GetStatusResponse(
      server_status=_ServerStatus(
        state=_ServerStatus.DORMANT if why else _ServerStatus.ACTIVE,
        explanation=why or 'serving',
        stats=_ServerStatus.Stats(
          early_rejection_errors_per_second=dormancy.rate()
        ),
      )
    )
    for key, entry in self._models.entries().items():
      model = response.models.add(
        model_key=key, model_status=_STATUS[entry.state]
      )
      if request.include_failure_reasons:
        model.failure_reason = entry.reason
      if request.include_method_stats and entry.model is not None:
        model.load.CopyFrom(_load(entry.model))
        for method, counts in entry.model.method_stats.items():
          model.method_stats.append(
            _method_stats(
              method, counts.snapshot(), entry.model.scheduler.pending(method)
            )
          )
    return response

  def _check_static(self, what: str) -> None:
    if self._keep_static:
      raise errors.Unavailable(
        f'{what} is not supported with --keep_statically_loaded_models. Start'
        ' this server without it.'
      )

  async def _wait(self, future: futures.Future) -> None:
    """Waits for a task that continues even if the caller disconnects."""
    work = asyncio.wrap_future(future)
    # If the caller disconnects, no other code reads the result of the task.
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
    stopping = asyncio.create_task(self._stopping.wait())
    try:
      await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
      if not work.done():
        raise errors.Unavailable(
          'this model server is stopping. Use another one.'
        )
      work.result()
    finally:
      stopping.cancel()


def _load(model: servable.Servable) -> modelet_pb2.GetStatusResponse.Load:
  now = model.scheduler.load()
  totals = [m.totals() for m in model.method_stats.values()]
  codes = sum((collections.Counter(t.codes) for t in totals), _NONE)
  return modelet_pb2.GetStatusResponse.Load(
    queued=now.queued,
    running=now.running,
    slots=now.slots,
    answered=codes['OK'],
    refused=codes['RESOURCE_EXHAUSTED'],
    failed=codes.total() - codes['OK'] - codes['RESOURCE_EXHAUSTED'],
    output_tokens=sum(t.output_tokens for t in totals),
  )


def _method_stats(
  method: str, figures: stats.Snapshot, pending: int
) -> modelet_pb2.GetStatusResponse.MethodStats:
  result = modelet_pb2.GetStatusResponse.MethodStats(
    method=method,
    errors_per_second=figures.errors_per_second,
    successes_per_second=figures.successes_per_second,
    recent_batch_sizes=figures.batch_sizes,
    pending_reqs=pending,
  )
  for name in ('mean', 'p50', 'p95', 'p99'):
    if (value := getattr(figures, name)) is not None:
      setattr(result, f'{name}_latency_on_success_per_second', value)
  return result
