"""What a client asks of a cell: the functions of sax.py and sax_aio.py.

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
from typing import NamedTuple

from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import model_detail
from saxml_ext.client.transport import names
from saxml_ext.client.transport import options as options_lib
from saxml_ext.client.transport import transport as transport_lib
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.security import acl_file
from saxml_ext.protobuf import admin_pb2

AdminOptions = options_lib.AdminOptions
ModelDetail = model_detail.ModelDetail

# In place of a method's name: every method.
ALL = 'all'


class ModelServerTypeStat(NamedTuple):
  """How many model servers there are of one kind."""

  chip_type: str
  chip_topology: str
  num_replicas: int


def _seconds(options: AdminOptions | None) -> float | None:
  return options_lib.seconds((options or AdminOptions()).timeout)


class AdminCalls:
  """The functions, over one kind of transport."""

  def __init__(self, transport: Callable[[], transport_lib.Transport]):
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
      num_replicas: how many servers shall hold it.
      overrides: attribute of the serving params -> value as JSON.
      options: deadline of the call.

    Raises:
      AlreadyExists: the id is taken.
      InvalidArgument: an argument is malformed.
    """
    model_id = names.complete(id)
    model = admin_pb2.Model(
      model_id=model_id,
      model_path=model_path,
      checkpoint_path=checkpoint_path,
      requested_num_replicas=num_replicas,
      overrides=overrides,
    )
    await self._admin(model_id).publish(model, _seconds(options))
    address_watcher.forgive(model_id)

  async def Unpublish(
    self, id: str, options: AdminOptions | None = None
  ) -> None:
    """Unpublishes a model; raises NotFound if it is not published."""
    model_id = names.complete(id)
    await self._admin(model_id).unpublish(model_id, _seconds(options))

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
    model_id = names.complete(id)
    admin, timeout = self._admin(model_id), _seconds(options)
    old = (await admin.list_one(model_id, timeout)).model
    model = admin_pb2.Model(
      model_id=model_id,
      model_path=model_path,
      checkpoint_path=checkpoint_path,
      requested_num_replicas=num_replicas,
      overrides=old.overrides,
    )
    await admin.update(model, timeout)

  async def UpdateReplicas(
    self,
    id: str,
    num_replicas: int,
    options: AdminOptions | None = None,
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
    model_id = names.complete(id)
    ids.check_replicas(num_replicas)
    admin, timeout = self._admin(model_id), _seconds(options)
    model = (await admin.list_one(model_id, timeout)).model
    model.requested_num_replicas = num_replicas
    await admin.update(model, timeout)

  async def UpdateCheckpoint(
    self,
    id: str,
    checkpoint_path: str,
    options: AdminOptions | None = None,
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
    model_id = names.complete(id)
    admin, timeout = self._admin(model_id), _seconds(options)
    model = (await admin.list_one(model_id, timeout)).model
    model.checkpoint_path = checkpoint_path
    await admin.update(model, timeout)

  async def List(
    self, id: str, options: AdminOptions | None = None
  ) -> tuple[str, str, int]:
    """(model path, checkpoint, number of servers assigned) of a model."""
    detail = await self.ListDetail(id, options)
    return detail.model, detail.ckpt, detail.active_replicas

  async def ListDetail(
    self, id: str, options: AdminOptions | None = None
  ) -> ModelDetail:
    """What is known of a model; raises NotFound if it is not published."""
    model_id = names.complete(id)
    return model_detail.of(
      await self._admin(model_id).list_one(model_id, _seconds(options))
    )

  async def ListAll(
    self, id: str, options: AdminOptions | None = None
  ) -> list[str]:
    """Ids of a cell's models, in no order."""
    return [item.model_id for item in await self.ListAllDetails(id, options)]

  async def ListAllDetails(
    self, cell: str, options: AdminOptions | None = None
  ) -> list[ModelDetail]:
    """What is known of each of a cell's models, in no order."""
    admin = admin_client.get(cell, self._transport())
    published = await admin.list_all(_seconds(options))
    return [model_detail.of(item) for item in published]

  async def Stats(
    self, id: str, options: AdminOptions | None = None
  ) -> list[ModelServerTypeStat]:
    """Counts model servers of a cell, or those assigned to a model, by kind.

    Raises:
      NotFound: the model is not published.
    """
    parsed = ids.parse_cell_or_model_id(names.complete(id))
    if isinstance(parsed, ids.CellId):
      cell, model_id = str(parsed), ''
    else:
      cell, model_id = parsed.cell, str(parsed)
    admin = admin_client.get(cell, self._transport())
    response = await admin.stats(model_id, _seconds(options))
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
    self,
    id: str,
    num_replicas: int,
    options: AdminOptions | None = None,
  ) -> None:
    """Waits until so many replicas of a model can serve.

    Args:
      id: "/sax/<cell>/<model>".
      num_replicas: how many; none or fewer returns at once.
      options: deadline of the call.

    Raises:
      NotFound: the model is not published, or was unpublished meanwhile.
      FailedPrecondition: loading it failed wherever it was tried.
      DeadlineExceeded: time is up.
    """
    model_id = names.complete(id)
    await self._admin(model_id).wait_for_ready(
      model_id, num_replicas, _seconds(options)
    )
    address_watcher.forgive(model_id)

  async def WatchAddresses(self, id: str) -> AsyncGenerator[list[str], None]:
    """Follows the addresses of a model's replicas until it is unpublished.

    Yields:
      What changed, oldest first: "+ host:port", "- host:port", or "Reset" when
      the list starts anew.

    Raises:
      NotFound: the model is not published, or not any more.
    """
    model_id = names.complete(id)
    admin = self._admin(model_id)
    known = address_watcher.AddressSet()
    while True:
      response = await admin.watch_loc(
        model_id, known.admin_server_id, known.seqno, None
      )
      yield known.apply(response)

  async def GetACL(
    self,
    cell_or_model_id: str,
    method_id: str = '',
    options: AdminOptions | None = None,
  ) -> str | dict[str, str]:
    """Reads who may change a cell or a model, or call a model's method.

    Args:
      cell_or_model_id: of what.
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
    cell_or_model_id = names.complete(cell_or_model_id)
    parsed = ids.parse_cell_or_model_id(cell_or_model_id)
    if isinstance(parsed, ids.CellId):
      _check_no_method(cell_or_model_id, method_id)
      config = await self._transport().read(
        cell_files.read_config, admin_client.root(), str(parsed)
      )
      return config.admin_acl
    published = await self._admin(cell_or_model_id).list_one(
      cell_or_model_id, _seconds(options)
    )
    if not method_id:
      return published.model.admin_acl
    items = dict(published.model.acls.items)
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
      cell_or_model_id: of what.
      acl: its name, "acl/..."; "" for everybody, which a cell does not take.
      method_id: data method of a model.
      options: deadline of the call.

    Raises:
      InvalidArgument: the name is malformed, or there is no such method.
      Unimplemented: the cell has no file of ACLs to look the name up in.
    """
    cell_or_model_id = names.complete(cell_or_model_id)
    parsed = ids.parse_cell_or_model_id(cell_or_model_id)
    if isinstance(parsed, ids.CellId):
      _check_no_method(cell_or_model_id, method_id)
      await self._transport().read(_set_cell_acl, str(parsed), acl)
      return
    if method_id and acl:  # Without an ACL, any name can be taken off the list.
      acl_file.check_method(method_id)
    admin, timeout = self._admin(cell_or_model_id), _seconds(options)
    model = (await admin.list_one(cell_or_model_id, timeout)).model
    if not method_id:
      model.admin_acl = acl
    elif acl:
      model.acls.items[method_id] = acl
    else:
      model.acls.items.pop(method_id, None)
    await admin.update(model, timeout)

  def _admin(self, model_id: str) -> admin_client.AdminClient:
    cell = ids.parse_model_id(model_id).cell
    return admin_client.get(cell, self._transport())


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
