"""The calls of a client to a cell: the functions of sax.py and sax_aio.py.

Methods are coroutines. They take the id of a model, "/sax/<cell>/<model>" or
just "<model>" where the environment variable SAX_CELL names the cell; `Stats`
and those for ACLs also take that of a cell, "/sax/<cell>", and `ListAll` and
`ListAllDetails` take nothing else.

Every one raises `SaxError`, among them InvalidArgument for a malformed id,
FailedPrecondition if the cell or its admin server was never set up, and
DeadlineExceeded with the last error before it when the time of `options` is
up. What a method raises besides is told there.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple

from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.security import acl_file
from saxml_ext.protobuf import admin_pb2

AdminOptions = options_lib.AdminOptions
ModelDetail = admin_client.ModelDetail

# In place of a method's name: every method.
ALL = 'all'


class ModelServerTypeStat(NamedTuple):
  """The number of model servers of one kind."""

  chip_type: str
  chip_topology: str
  num_replicas: int


def _seconds(options: AdminOptions | None) -> float | None:
  return options_lib.seconds((options or AdminOptions()).timeout)


class AdminCalls:
  """The functions, over one kind of transport."""

  def __init__(self, transport: Callable[[], blocking.Transport]):
    self._transport = transport

  async def Publish(
    self,
    id: str,
    model_path: str,
    checkpoint_path: str,
    num_replicas: int,
    overrides: Mapping[str, str] | None = None,
    options: AdminOptions | None = None,
  ) -> None:
    """Publishes a model; see `WaitForReady` for when it can serve.

    Args:
      id: "/sax/<cell>/<model>".
      model_path: registered name of its serving params.
      checkpoint_path: its checkpoint; "None" for random weights.
      num_replicas: The number of servers that shall hold it.
      overrides: attribute of the serving params -> value as JSON.
      options: deadline of the call.

    Raises:
      AlreadyExists: the id is taken.
      InvalidArgument: an argument is malformed.
    """
    model_id = options_lib.model_id(id)
    model = admin_pb2.Model(
      model_id=model_id,
      model_path=model_path,
      checkpoint_path=checkpoint_path,
      requested_num_replicas=num_replicas,
      overrides=overrides,
    )
    request = admin_pb2.PublishRequest(model=model)
    await self._call_for(model_id, 'Publish', request, options)
    address_watcher.forgive(model_id)

  async def Unpublish(
    self, id: str, options: AdminOptions | None = None
  ) -> None:
    """Unpublishes a model; raises NotFound if it is not published."""
    model_id = options_lib.model_id(id)
    request = admin_pb2.UnpublishRequest(model_id=model_id)
    await self._call_for(model_id, 'Unpublish', request, options)

  async def Update(
    self,
    id: str,
    model_path: str,
    checkpoint_path: str,
    num_replicas: int,
    options: AdminOptions | None = None,
  ) -> None:
    """Replaces what a model was published with; its overrides stay.

    Its ACLs are dropped, as stock Sax's client does; `UpdateReplicas` and
    `UpdateCheckpoint` keep them.

    Args:
      id: "/sax/<cell>/<model>".
      model_path: the registered name that it was published with.
      checkpoint_path: the new checkpoint.
      num_replicas: the new number of servers.
      options: deadline of each of the two calls that this takes.

    Raises:
      NotFound: the model is not published.
      InvalidArgument: the model path differs, or another argument is malformed.
    """
    model_id = options_lib.model_id(id)
    old = await self._published(model_id, options)
    model = admin_pb2.Model(
      model_id=model_id,
      model_path=model_path,
      checkpoint_path=checkpoint_path,
      requested_num_replicas=num_replicas,
      overrides=old.model.overrides,
    )
    await self._update(model, options)

  async def UpdateReplicas(
    self, id: str, num_replicas: int, options: AdminOptions | None = None
  ) -> None:
    """Changes how many servers shall hold a model, and nothing else.

    Args:
      id: "/sax/<cell>/<model>".
      num_replicas: the new number; 0 keeps it published without a server.
      options: deadline of each of the two calls that this takes.

    Raises:
      NotFound: the model is not published.
      InvalidArgument: the number is negative.
    """
    model_id = options_lib.model_id(id)
    ids.check_replicas(num_replicas)
    model = (await self._published(model_id, options)).model
    model.requested_num_replicas = num_replicas
    await self._update(model, options)

  async def UpdateCheckpoint(
    self, id: str, checkpoint_path: str, options: AdminOptions | None = None
  ) -> None:
    """Has a model's servers load another checkpoint; all else stays.

    Args:
      id: "/sax/<cell>/<model>".
      checkpoint_path: the new checkpoint. The same path again makes them load
        what lies there now.
      options: deadline of each of the two calls that this takes.

    Raises:
      NotFound: the model is not published.
      InvalidArgument: the path is malformed.
    """
    model_id = options_lib.model_id(id)
    model = (await self._published(model_id, options)).model
    model.checkpoint_path = checkpoint_path
    await self._update(model, options)

  async def List(
    self, id: str, options: AdminOptions | None = None
  ) -> tuple[str, str, int]:
    """Returns (model path, checkpoint, servers assigned) of a model."""
    detail = await self.ListDetail(id, options)
    return detail.model, detail.ckpt, detail.active_replicas

  async def ListDetail(
    self, id: str, options: AdminOptions | None = None
  ) -> ModelDetail:
    """Describes a model; raises NotFound if it is not published."""
    published = await self._published(options_lib.model_id(id), options)
    return admin_client.detail_of(published)

  async def ListAll(
    self, id: str, options: AdminOptions | None = None
  ) -> list[str]:
    """Returns the ids of a cell's models, in no order."""
    return [item.model_id for item in await self.ListAllDetails(id, options)]

  async def ListAllDetails(
    self, cell: str, options: AdminOptions | None = None
  ) -> list[ModelDetail]:
    """Describes each of a cell's models, in no order."""
    response = await self._call(cell, 'List', admin_pb2.ListRequest(), options)
    return [admin_client.detail_of(item) for item in response.published_models]

  async def Stats(
    self, id: str, options: AdminOptions | None = None
  ) -> list[ModelServerTypeStat]:
    """Counts model servers of a cell, or those assigned to a model, by kind.

    Raises:
      NotFound: the model is not published.
    """
    target = ids.parse_cell_or_model_id(options_lib.model_id(id))
    if isinstance(target, ids.CellId):
      cell, model_id = str(target), ''
    else:
      cell, model_id = target.cell, str(target)
    request = admin_pb2.StatsRequest(model_id=model_id)
    response = await self._call(cell, 'Stats', request, options)
    server = admin_pb2.ModelServer
    return [
      ModelServerTypeStat(
        server.ChipType.Name(item.chip_type),
        server.ChipTopology.Name(item.chip_topology),
        item.num_replicas,
      )
      for item in response.model_server_type_stats
    ]

  async def WaitForReady(
    self, id: str, num_replicas: int, options: AdminOptions | None = None
  ) -> None:
    """Waits until so many replicas of a model can serve.

    Args:
      id: "/sax/<cell>/<model>".
      num_replicas: The number of replicas; none or fewer returns at once.
      options: deadline of the call.

    Raises:
      NotFound: the model is not published, or was unpublished meanwhile.
      FailedPrecondition: loading it failed wherever it was tried.
      DeadlineExceeded: time is up.
    """
    model_id = options_lib.model_id(id)
    request = admin_pb2.WaitForReadyRequest(
      model_id=model_id, num_replicas=num_replicas
    )
    await self._call_for(model_id, 'WaitForReady', request, options)
    address_watcher.forgive(model_id)

  async def WatchAddresses(self, id: str) -> AsyncGenerator[list[str], None]:
    """Follows the addresses of a model's replicas until it is unpublished.

    Yields:
      What changed, oldest first: "+ host:port", "- host:port", or "Reset" when
      the list starts anew.

    Raises:
      NotFound: the model is not published, or not any more.
    """
    model_id = options_lib.model_id(id)
    known = address_watcher.AddressSet()
    while True:
      request = known.request(model_id)
      yield known.apply(await self._call_for(model_id, 'WatchLoc', request))

  async def GetACL(
    self,
    cell_or_model_id: str,
    method_id: str = '',
    options: AdminOptions | None = None,
  ) -> str | dict[str, str]:
    """Reads who may change a cell or a model, or call a model's method.

    Args:
      cell_or_model_id: The id of the cell or the model.
      method_id: data method of a model, "lm.generate"; "all" for every one that
        has an ACL; "" for the cell's or model's own.
      options: deadline of the call.

    Returns:
      The ACL's name, "" if there is none; with "all" a dict from method
      to ACL.

    Raises:
      NotFound: the model is not published.
      InvalidArgument: a method was given for a cell.
    """
    cell_or_model_id = options_lib.model_id(cell_or_model_id)
    parsed = ids.parse_cell_or_model_id(cell_or_model_id)
    if isinstance(parsed, ids.CellId):
      _check_no_method(cell_or_model_id, method_id)
      config = await self._transport().read(
        cell_files.read_config, admin_client.root(), str(parsed)
      )
      return config.admin_acl
    model = (await self._published(cell_or_model_id, options)).model
    if not method_id:
      return model.admin_acl
    items = dict(model.acls.items)
    return items if method_id == ALL else items.get(method_id, '')

  async def SetACL(
    self,
    cell_or_model_id: str,
    acl: str,
    method_id: str = '',
    options: AdminOptions | None = None,
  ) -> None:
    """Sets who may change a cell or a model, or call a model's method.

    Args:
      cell_or_model_id: The id of the cell or the model.
      acl: its name, "acl/..."; "" for everybody, which a cell does not take.
      method_id: data method of a model.
      options: deadline of the call.

    Raises:
      InvalidArgument: the name is malformed, or there is no such method.
      Unimplemented: the cell has no file of ACLs to look the name up in.
    """
    cell_or_model_id = options_lib.model_id(cell_or_model_id)
    parsed = ids.parse_cell_or_model_id(cell_or_model_id)
    if isinstance(parsed, ids.CellId):
      _check_no_method(cell_or_model_id, method_id)
      await self._transport().read(_set_cell_acl, str(parsed), acl)
      return
    if method_id and acl:  # Without an ACL, any name can be taken off the list.
      acl_file.check_method(method_id)
    model = (await self._published(cell_or_model_id, options)).model
    if not method_id:
      model.admin_acl = acl
    elif acl:
      model.acls.items[method_id] = acl
    else:
      model.acls.items.pop(method_id, None)
    await self._update(model, options)

  async def _call(
    self, cell: str, method: str, request: Any, options: AdminOptions | None
  ) -> Any:
    admin = admin_client.get(cell, self._transport())
    return await admin.call(method, request, _seconds(options))

  async def _call_for(
    self,
    model_id: str,
    method: str,
    request: Any,
    options: AdminOptions | None = None,
  ) -> Any:
    cell = ids.parse_model_id(model_id).cell
    return await self._call(cell, method, request, options)

  async def _published(
    self, model_id: str, options: AdminOptions | None
  ) -> admin_pb2.PublishedModel:
    cell = ids.parse_model_id(model_id).cell
    admin = admin_client.get(cell, self._transport())
    return await admin.list_one(model_id, _seconds(options))

  async def _update(
    self, model: admin_pb2.Model, options: AdminOptions | None
  ) -> None:
    request = admin_pb2.UpdateRequest(model=model)
    # Sent also when their map is empty, as other clients do.
    request.model.acls.SetInParent()
    await self._call_for(model.model_id, 'Update', request, options)


def _check_no_method(cell: str, method: str) -> None:
  if method:
    raise errors.InvalidArgument(
      f'{cell} is a cell, which has no method "{method}": name a model, or no '
      'method'
    )


def _set_cell_acl(cell: str, acl: str) -> None:
  """Writes the ACL of a cell's config; the admin server reads it again."""
  if not acl:
    raise errors.InvalidArgument(
      f'the admin ACL of {cell} cannot be empty: name one, "acl/..."'
    )
  # Imported late: whoever sets no ACL starts without it.
  from saxml_ext.common.security import access

  root = admin_client.root()
  access.Access.of_cell(root, cell).check_name(acl)
  config = cell_files.read_config(root, cell)
  ids.check_fs_root(config.fs_root)
  config.admin_acl = acl
  cell_files.write_config(root, cell, config)
