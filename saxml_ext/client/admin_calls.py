"""What a client asks of a cell: the functions of sax.py and sax_aio.py.

Methods are coroutines; every one but `Stats` and `ListAll` takes the id of a
model "/sax/<cell>/<model>", those for ACLs also that of a cell "/sax/<cell>".
They raise `SaxError`.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import NamedTuple

from saxml_ext.client import admin_client
from saxml_ext.client import options as options_lib
from saxml_ext.client import transport as transport_lib
from saxml_ext.common import acls
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2

AdminOptions = options_lib.AdminOptions

# In place of a method's name: every method.
ALL = 'all'


@dataclasses.dataclass(frozen=True)
class ModelDetail:
  """A published model.

  Attributes:
    model: registered name of its serving params.
    ckpt: its checkpoint.
    max_replicas: replicas asked for.
    active_replicas: servers assigned to it.
    overrides: attribute of the serving params -> value as JSON.
  """

  model: str
  ckpt: str
  max_replicas: int
  active_replicas: int
  overrides: Mapping[str, str]


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
      model_id: str,
      model_path: str,
      checkpoint_path: str,
      num_replicas: int,
      overrides: Mapping[str, str] | None = None,
      options: AdminOptions | None = None,
  ) -> None:
    """Publishes a model; see `WaitForReady` for when it can serve.

    Args:
      model_id: "/sax/<cell>/<model>".
      model_path: registered name of its serving params.
      checkpoint_path: its checkpoint; "None" for random weights.
      num_replicas: how many servers shall hold it.
      overrides: attribute of the serving params -> value as JSON.
      options: deadline of the call.

    Raises:
      AlreadyExists: the id is taken.
      InvalidArgument: an argument is malformed.
    """
    model = admin_pb2.Model(
        model_id=model_id,
        model_path=model_path,
        checkpoint_path=checkpoint_path,
        requested_num_replicas=num_replicas,
        overrides=overrides,
    )
    await self._admin(model_id).publish(model, _seconds(options))

  async def Unpublish(
      self, model_id: str, options: AdminOptions | None = None
  ) -> None:
    """Unpublishes a model; raises NotFound if it is not published."""
    await self._admin(model_id).unpublish(model_id, _seconds(options))

  async def Update(
      self,
      model_id: str,
      model_path: str,
      checkpoint_path: str,
      num_replicas: int,
      options: AdminOptions | None = None,
  ) -> None:
    """Changes a model's checkpoint or replicas; its overrides stay.

    Its ACLs are dropped. Raises NotFound if the model is not published.
    """
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

  async def List(
      self, model_id: str, options: AdminOptions | None = None
  ) -> tuple[str, str, int]:
    """(model path, checkpoint, number of servers assigned) of a model."""
    detail = await self.ListDetail(model_id, options)
    return detail.model, detail.ckpt, detail.active_replicas

  async def ListDetail(
      self, model_id: str, options: AdminOptions | None = None
  ) -> ModelDetail:
    """What is known of a model; raises NotFound if it is not published."""
    published = await self._admin(model_id).list_one(
        model_id, _seconds(options)
    )
    return ModelDetail(
        model=published.model.model_path,
        ckpt=published.model.checkpoint_path,
        max_replicas=published.model.requested_num_replicas,
        active_replicas=len(published.modelet_addresses),
        overrides=dict(published.model.overrides),
    )

  async def ListAll(
      self, cell: str, options: AdminOptions | None = None
  ) -> list[str]:
    """Ids of a cell's models, in no order."""
    admin = admin_client.get(cell, self._transport())
    published = await admin.list_all(_seconds(options))
    return [item.model.model_id for item in published]

  async def Stats(
      self, cell_or_model_id: str, options: AdminOptions | None = None
  ) -> list[ModelServerTypeStat]:
    """Counts model servers of a cell, or those assigned to a model."""
    parsed = ids.parse_cell_or_model_id(cell_or_model_id)
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
      model_id: str,
      num_replicas: int,
      options: AdminOptions | None = None,
  ) -> None:
    """Waits until so many replicas of a model can serve.

    Raises:
      NotFound: the model is not published.
      Cancelled: it was unpublished meanwhile.
      DeadlineExceeded: time is up.
    """
    await self._admin(model_id).wait_for_ready(
        model_id, num_replicas, _seconds(options)
    )

  async def GetACL(
      self,
      cell_or_model_id: str,
      method: str = '',
      options: AdminOptions | None = None,
  ) -> str | dict[str, str]:
    """The ACL of a cell, a model or one of its methods; "" if there is none.

    With method "all" it is a dict from method to ACL.
    """
    parsed = ids.parse_cell_or_model_id(cell_or_model_id)
    if isinstance(parsed, ids.CellId):
      config = await self._transport().read(
          cell_files.read_config, admin_client.root(), str(parsed)
      )
      return config.admin_acl
    published = await self._admin(cell_or_model_id).list_one(
        cell_or_model_id, _seconds(options)
    )
    if not method:
      return published.model.admin_acl
    items = dict(published.model.acls.items)
    return items if method == ALL else items.get(method, '')

  async def SetACL(
      self,
      cell_or_model_id: str,
      acl: str,
      method: str = '',
      options: AdminOptions | None = None,
  ) -> None:
    """Sets who may change a cell or a model, or call a model's method.

    Args:
      cell_or_model_id: of what.
      acl: its name, "acl/..."; "" for everybody, which a cell does not take.
      method: data method of a model.
      options: deadline of the call.

    Raises:
      InvalidArgument: the name is malformed, or there is no such method.
      Unimplemented: there is no database of ACLs to look the name up in.
    """
    parsed = ids.parse_cell_or_model_id(cell_or_model_id)
    if isinstance(parsed, ids.CellId):
      await self._transport().read(_set_cell_acl, str(parsed), acl)
      return
    if method:
      acls.check_method(method)
    admin, timeout = self._admin(cell_or_model_id), _seconds(options)
    model = (await admin.list_one(cell_or_model_id, timeout)).model
    if not method:
      model.admin_acl = acl
    elif acl:
      model.acls.items[method] = acl
    else:
      model.acls.items.pop(method, None)
    await admin.update(model, timeout)

  def _admin(self, model_id: str) -> admin_client.AdminClient:
    cell = ids.parse_model_id(model_id).cell
    return admin_client.get(cell, self._transport())


def _set_cell_acl(cell: str, acl: str) -> None:
  """Writes the ACL of a cell's config; the admin server reads it again."""
  if not acl:
    raise errors.InvalidArgument(
        f'the admin ACL of {cell} cannot be empty: name one, "acl/..."'
    )
  acls.check_acl_name(acl)
  root = admin_client.root()
  config = cell_files.read_config(root, cell)
  ids.check_fs_root(config.fs_root)
  config.admin_acl = acl
  cell_files.write_config(root, cell, config)
