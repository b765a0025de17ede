"""Implements the functions of sax.py and sax_aio.py that call a cell.

Methods are coroutines. They take the id of a model: "/sax/<cell>/<model>", or
"<model>" if the environment variable SAX_CELL names the cell. `Stats` and the
ACL methods also take the id of a cell, "/sax/<cell>". `ListAll` and
`ListAllDetails` take only the id of a cell.

Every method raises `SaxError`, among them:
  InvalidArgument: The id is malformed.
  FailedPrecondition: The cell or its admin server was never set up.
  DeadlineExceeded: The time limit of `options` passed. The message has the last
    error before it.
Each method documents its further errors.
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
_Options = AdminOptions | None  # None for no timeout.
ModelDetail = admin_client.ModelDetail

# Stands for every method, in place of a method's name.
ALL = 'all'


class ModelServerTypeStat(NamedTuple):
  """The number of model servers of one kind."""

  chip_type: str
  chip_topology: str
  num_replicas: int


def _seconds(options: _Options) -> float | None:
  return options_lib.seconds((options or AdminOptions()).timeout)


class AdminCalls:
  """The client's functions for cells, over one kind of transport."""

  def __init__(self, transport: Callable[[], blocking.Transport]):
    self._transport = transport

  async def Publish(
    self,
    id: str,
    model_path: str,
    checkpoint_path: str,
    num_replicas: int,
    overrides: Mapping[str, str] | None = None,
    options: _Options = None,
  ) -> None:
    """Publishes a model; `WaitForReady` waits until it can serve.

    Args:
      id: The model id, "/sax/<cell>/<model>".
      model_path: The registered name of its serving params.
      checkpoint_path: The path of its checkpoint, or "None" for random weights.
      num_replicas: The number of servers that should load it.
      overrides: The values, as JSON, by attribute of the serving params.
      options: The deadline of the call.

    Raises:
      AlreadyExists: The id is in use.
      InvalidArgument: An argument is malformed.
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

  async def Unpublish(self, id: str, options: _Options = None) -> None:
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
    options: _Options = None,
  ) -> None:
    """Replaces the arguments of a published model, except its overrides.

    The ACLs of the model are removed, as stock Sax's client does.
    `UpdateReplicas` and `UpdateCheckpoint` keep them.

    Args:
      id: The model id, "/sax/<cell>/<model>".
      model_path: The registered name that the model was published with.
      checkpoint_path: The path of the new checkpoint.
      num_replicas: The new number of servers.
      options: The deadline of each of the two calls that this takes.

    Raises:
      NotFound: The model is not published.
      InvalidArgument: The model path differs, or another argument is malformed.
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
    self, id: str, num_replicas: int, options: _Options = None
  ) -> None:
    """Changes only the number of servers that should load a model.

    Args:
      id: The model id, "/sax/<cell>/<model>".
      num_replicas: The new number; with 0 the model stays published without a
        server.
      options: The deadline of each of the two calls that this takes.

    Raises:
      NotFound: The model is not published.
      InvalidArgument: The number is negative.
    """
    model_id = options_lib.model_id(id)
    ids.check_replicas(num_replicas)
    model = (await self._published(model_id, options)).model
    model.requested_num_replicas = num_replicas
    await self._update(model, options)

  async def UpdateCheckpoint(
    self, id: str, checkpoint_path: str, options: _Options = None
  ) -> None:
    """Makes a model's servers load another checkpoint; all else stays the same.

    Args:
      id: The model id, "/sax/<cell>/<model>".
      checkpoint_path: The path of the new checkpoint. With the same path, the
        servers load the current content of that path again.
      options: The deadline of each of the two calls that this takes.

    Raises:
      NotFound: The model is not published.
      InvalidArgument: The path is malformed.
    """
    model_id = options_lib.model_id(id)
    model = (await self._published(model_id, options)).model
    model.checkpoint_path = checkpoint_path
    await self._update(model, options)

  async def List(
    self, id: str, options: _Options = None
  ) -> tuple[str, str, int]:
    """Returns the (model path, checkpoint, number of servers) of a model."""
    detail = await self.ListDetail(id, options)
    return detail.model, detail.ckpt, detail.active_replicas

  async def ListDetail(self, id: str, options: _Options = None) -> ModelDetail:
    """Returns the details of a published model; raises NotFound."""
    published = await self._published(options_lib.model_id(id), options)
    return admin_client.detail_of(published)

  async def ListAll(self, id: str, options: _Options = None) -> list[str]:
    """Returns the ids of a cell's models, in no particular order."""
    return [item.model_id for item in await self.ListAllDetails(id, options)]

  async def ListAllDetails(
    self, cell: str, options: _Options = None
  ) -> list[ModelDetail]:
    """Returns the details of a cell's models, in no particular order."""
    response = await self._call(cell, 'List', admin_pb2.ListRequest(), options)
    return [admin_client.detail_of(item) for item in response.published_models]

  async def Stats(
    self, id: str, options: _Options = None
  ) -> list[ModelServerTypeStat]:
    """Counts the model servers of a cell, or of one model, by kind.

    Raises:
      NotFound: The model is not published.
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
    self, id: str, num_replicas: int, options: _Options = None
  ) -> None:
    """Waits until enough replicas of a model can serve.

    Args:
      id: The model id, "/sax/<cell>/<model>".
      num_replicas: The number of replicas; the call returns at once if it is 0
        or negative.
      options: The deadline of the call.

    Raises:
      NotFound: The model is not published, or was unpublished meanwhile.
      FailedPrecondition: Loading the model failed on every server that tried.
      DeadlineExceeded: The deadline passed.
    """
    model_id = options_lib.model_id(id)
    request = admin_pb2.WaitForReadyRequest(
      model_id=model_id, num_replicas=num_replicas
    )
    await self._call_for(model_id, 'WaitForReady', request, options)
    address_watcher.forgive(model_id)

  async def WatchAddresses(self, id: str) -> AsyncGenerator[list[str], None]:
    """Yields changes of a model's addresses until the model is unpublished.

    Yields:
      The changes, oldest first: "+ host:port", "- host:port", or "Reset" if the
        list starts again.

    Raises:
      NotFound: The model is not published, or is no longer published.
    """
    model_id = options_lib.model_id(id)
    known = address_watcher.AddressSet()
    while True:
      request = known.request(model_id)
      yield known.apply(await self._call_for(model_id, 'WatchLoc', request))

  async def GetACL(
    self, cell_or_model_id: str, method_id: str = '', options: _Options = None
  ) -> str | dict[str, str]:
    """Returns the ACL for changing a cell or a model, or for calling a method.

    Args:
      cell_or_model_id: The id of the cell or the model.
      method_id: The data method of a model, for example "lm.generate". With
        "all", every method that has an ACL. With "", the cell or the model
        itself.
      options: The deadline of the call.

    Returns:
      The name of the ACL, or "" if there is none. With "all", a dict from
      method to ACL.

    Raises:
      NotFound: The model is not published.
      InvalidArgument: A method was given for a cell.
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
    options: _Options = None,
  ) -> None:
    """Sets the ACL for changing a cell or a model, or for calling a method.

    Args:
      cell_or_model_id: The id of the cell or the model.
      acl: The name of the ACL, "acl/...". With "", everybody is admitted; a
        cell does not accept "".
      method_id: The data method of a model, or "" for the cell or the model
        itself.
      options: The deadline of the call.

    Raises:
      InvalidArgument: The name is malformed, or there is no such method.
      Unimplemented: The cell has no ACL file, so the name cannot be resolved.
    """
    cell_or_model_id = options_lib.model_id(cell_or_model_id)
    parsed = ids.parse_cell_or_model_id(cell_or_model_id)
    if isinstance(parsed, ids.CellId):
      _check_no_method(cell_or_model_id, method_id)
      await self._transport().read(_set_cell_acl, str(parsed), acl)
      return
    # Without an ACL, the call removes a name, which may be unknown.
    if method_id and acl:
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
    self, cell: str, method: str, request: Any, options: _Options
  ) -> Any:
    admin = admin_client.get(cell, self._transport())
    return await admin.call(method, request, _seconds(options))

  async def _call_for(
    self, model_id: str, method: str, request: Any, options: _Options = None
  ) -> Any:
    cell = ids.parse_model_id(model_id).cell
    return await self._call(cell, method, request, options)

  async def _published(
    self, model_id: str, options: _Options
  ) -> admin_pb2.PublishedModel:
    cell = ids.parse_model_id(model_id).cell
    admin = admin_client.get(cell, self._transport())
    return await admin.list_one(model_id, _seconds(options))

  async def _update(self, model: admin_pb2.Model, options: _Options) -> None:
    request = admin_pb2.UpdateRequest(model=model)
    # An empty map is sent too, as other clients do.
    request.model.acls.SetInParent()
    await self._call_for(model.model_id, 'Update', request, options)


def _check_no_method(cell: str, method: str) -> None:
  if method:
    raise errors.InvalidArgument(
      f'{cell} is a cell, which has no method "{method}". Pass a model, or'
      ' omit the method'
    )


def _set_cell_acl(cell: str, acl: str) -> None:
  """Writes the ACL to the cell's config, which the admin server rereads."""
  if not acl:
    raise errors.InvalidArgument(
      f'the admin ACL of {cell} must not be empty. Pass one, "acl/..."'
    )
  # Only programs that set ACLs need this module, so others start faster.
  from saxml_ext.common.security import access

  root = admin_client.root()
  access.Access.from_cell(root, cell).check_name(acl)
  config = cell_files.read_config(root, cell)
  ids.check_fs_root(config.fs_root)
  config.admin_acl = acl
  cell_files.write_config(root, cell, config)
