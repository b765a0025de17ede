"""Implements the eight calls of sax.Admin."""

import collections
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import grpc

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin import validation
from saxml_ext.admin.status import replica_table
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import ids
from saxml_ext.common.security import access as access_lib
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_Context: TypeAlias = grpc.aio.ServicerContext
_method = grpc_aio.method(wrap_text=True)


class AdminService(admin_pb2_grpc.AdminServicer):
  """Checks requests, calls the controller, and builds the responses.

  A call that waits (WatchLoc, WaitForReady) is a coroutine. gRPC cancels it
  when its client disconnects or its deadline passes, so it needs no timer.
  """

  def __init__(
    self,
    cell: str,
    leading: Callable[[], Awaitable[controller_lib.Controller]],
    access: access_lib.Access,
  ):
    """Serves one cell.

    Args:
      cell: The cell, "/sax/<cell>".
      leading: A function that returns the cell's controller. It raises
        Unavailable if this admin server does not lead.
      access: The access lists.
    """
    self._access = access
    self._cell = cell
    self._leading = leading

  @_method
  async def Publish(
    self, request: admin_pb2.PublishRequest, context: _Context
  ) -> admin_pb2.PublishResponse:
    """Starts serving a model."""
    self._access.check_admin(
      access_lib.caller_names(context), f'Publish to {self._cell}'
    )
    self._check_model(request.model)
    overrides.check(request.model.model_path, request.model.overrides)
    controller = await self._leading()
    await controller.publish(request.model)
    return admin_pb2.PublishResponse()

  @_method
  async def Update(
    self, request: admin_pb2.UpdateRequest, context: _Context
  ) -> admin_pb2.UpdateResponse:
    """Changes a published model."""
    model_id = request.model.model_id
    controller = await self._leading_for(context, 'Update', model_id)
    self._check_model(request.model)
    await controller.update(request.model)
    return admin_pb2.UpdateResponse()

  @_method
  async def Unpublish(
    self, request: admin_pb2.UnpublishRequest, context: _Context
  ) -> admin_pb2.UnpublishResponse:
    """Stops serving a model."""
    model_id = request.model_id
    controller = await self._leading_for(context, 'Unpublish', model_id)
    await controller.unpublish(model_id)
    return admin_pb2.UnpublishResponse()

  @_method
  async def List(
    self, request: admin_pb2.ListRequest, context: _Context
  ) -> admin_pb2.ListResponse:
    """Lists the published models and their servers."""
    del context
    if request.model_id:
      ids.check_model_in_cell(request.model_id, self._cell)
    controller = await self._leading()
    if request.model_id:
      entries = [controller.get(request.model_id)]
    else:
      entries = controller.entries()
    holders = controller.members.holders()
    response = admin_pb2.ListResponse()
    for entry in entries:
      servers = holders.get(entry.model.model_id, [])
      published = response.published_models.add()
      published.model.CopyFrom(entry.model)
      published.model.ClearField('uuid')
      published.model.method_names[:] = sorted(
        set().union(*(s.held[entry.model.model_id].methods for s in servers))
      )
      published.modelet_addresses.extend(s.address for s in servers)
      published.replicas.extend(
        replica_table.describe(entry, servers, controller.members)
      )
    return response

  @_method
  async def Stats(
    self, request: admin_pb2.StatsRequest, context: _Context
  ) -> admin_pb2.StatsResponse:
    """Counts model servers, all or those of one model."""
    del context
    if request.model_id:
      ids.check_model_in_cell(request.model_id, self._cell)
    controller = await self._leading()
    if request.model_id:
      controller.get(request.model_id)
      servers = controller.holders(request.model_id)
    else:
      servers = controller.members.all()
    specs = [server.join.model_server for server in servers]
    types = collections.Counter((s.chip_type, s.chip_topology) for s in specs)
    paths = collections.Counter(
      path for s in specs for path in set(s.servable_model_paths)
    )
    return admin_pb2.StatsResponse(
      model_server_type_stats=[
        admin_pb2.ModelServerTypeStat(
          chip_type=chip, chip_topology=topology, num_replicas=count
        )
        for (chip, topology), count in types.items()
      ],
      num_servers_by_servable_model_path=paths,
    )

  @_method
  async def WatchLoc(
    self, request: admin_pb2.WatchLocRequest, context: _Context
  ) -> admin_pb2.WatchLocResponse:
    """Waits for a change of a model's addresses."""
    del context
    if request.seqno < 0:
      raise grpc_aio.Verbatim(
        grpc.StatusCode.INVALID_ARGUMENT,
        f'WatchLoc seqno {request.seqno} should be non-negative '
        'rpc error: code = InvalidArgument desc = InvalidArgument',
      )
    ids.parse_model_id(request.model_id)
    controller = await self._leading()
    try:
      entry = controller.get(request.model_id)
    except errors.NotFound as e:
      name = ids.shorten(request.model_id)
      raise errors.NotFound(f'model {name} not found') from e
    server_id = controller.server_id
    seqno = request.seqno if request.admin_server_id == server_id else 0
    while (delta := entry.addresses.read(seqno)) is None:
      await entry.changed.wait()
      controller.check_leads()
    return admin_pb2.WatchLocResponse(result=delta, admin_server_id=server_id)

  @_method
  async def WaitForReady(
    self, request: admin_pb2.WaitForReadyRequest, context: _Context
  ) -> admin_pb2.WaitForReadyResponse:
    """Waits until the requested number of replicas is loaded."""
    del context
    ids.check_model_in_cell(request.model_id, self._cell)
    controller = await self._leading()
    await controller.wait_for_ready(request.model_id, request.num_replicas)
    return admin_pb2.WaitForReadyResponse()

  @_method
  async def Join(
    self, request: admin_pb2.JoinRequest, context: _Context
  ) -> admin_pb2.JoinResponse:
    """Adds a model server."""
    self._access.check_server(
      access_lib.caller_names(context), f'Join of {self._cell}'
    )
    if not request.address:
      raise errors.InvalidArgument(
        'JoinRequest.modelet_address cannot be empty'
      )
    # A program that joins for a server that hangs does not know its model
    # paths.
    if not request.HasField('model_server') and not request.leaving:
      raise errors.InvalidArgument('JoinRequest.modelet missing')
    controller = await self._leading()
    await controller.members.join(request, access_lib.client_of(context))
    return admin_pb2.JoinResponse()

  def _check_model(self, model: admin_pb2.Model) -> None:
    validation.check_model(model, self._cell, self._access.check_name)

  async def _leading_for(
    self, context: _Context, what: str, model_id: str
  ) -> controller_lib.Controller:
    """Returns the controller to a caller who may change a model.

    Raises:
      PermissionDenied: The caller is an admin neither of the cell nor of the
        model. The message is the same for models that are not published.
    """
    ids.check_model_in_cell(model_id, self._cell)
    controller = await self._leading()
    try:
      model_acl = controller.get(model_id).model.admin_acl
    except errors.NotFound:
      model_acl = ''
    self._access.check_admin(
      access_lib.caller_names(context),
      f'{what} of {ids.shorten(model_id)}',
      model_acl,
    )
    return controller
