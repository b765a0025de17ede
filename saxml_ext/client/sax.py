"""The Python client of a Sax cell.

    from saxml_ext.client import sax

    sax.Publish('/sax/test/gptj', 'saxml_ext.params.gptj.TinyFP32', path, 1)
    sax.WaitForReady('/sax/test/gptj', 1)
    for text, score in sax.Model('/sax/test/gptj').LM().Generate('Hello'):
      print(score, text)

Cells are found under the root that `SetRoot` or the environment variable
SAX_ROOT names. Functions and methods are thread-safe and raise `SaxError`.
"""

from collections.abc import Mapping
import dataclasses

# Before any module that imports gRPC.
from saxml_ext.common import grpc_log  # pylint: disable=unused-import

from saxml_ext.client import acl as acl_lib
from saxml_ext.client import admin_client
from saxml_ext.client import data_client
from saxml_ext.client import lm
from saxml_ext.client import options as options_lib
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2

SaxError = errors.SaxError
LM = lm.LM
Options = options_lib.Options
ModelOptions = options_lib.ModelOptions
AdminOptions = options_lib.AdminOptions
SetRoot = admin_client.set_root


class Model:
  """A published model."""

  def __init__(self, model_id: str, options: Options | None = None):
    """Never fails: what is wrong with the id shows at the first request."""
    self._client = data_client.DataClient(model_id, options or Options())

  def LM(self) -> LM:
    """The model's language methods."""
    return lm.LM(self._client)


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


def _timeout(options: AdminOptions | None) -> float | None:
  return options_lib.seconds((options or AdminOptions()).timeout)


def _admin(model_id: str) -> admin_client.AdminClient:
  return admin_client.get(ids.parse_model_id(model_id).cell)


def Publish(
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
  _admin(model_id).publish(model, _timeout(options))


def Unpublish(model_id: str, options: AdminOptions | None = None) -> None:
  """Unpublishes a model; raises NotFound if it is not published."""
  _admin(model_id).unpublish(model_id, _timeout(options))


def Update(
    model_id: str,
    model_path: str,
    checkpoint_path: str,
    num_replicas: int,
    options: AdminOptions | None = None,
) -> None:
  """Changes a model's checkpoint or replicas; its overrides stay.

  Its ACLs are dropped. Raises NotFound if the model is not published.
  """
  admin = _admin(model_id)
  old = admin.list_one(model_id, _timeout(options)).model
  model = admin_pb2.Model(
      model_id=model_id,
      model_path=model_path,
      checkpoint_path=checkpoint_path,
      requested_num_replicas=num_replicas,
      overrides=old.overrides,
  )
  admin.update(model, _timeout(options))


def List(
    model_id: str, options: AdminOptions | None = None
) -> tuple[str, str, int]:
  """(model path, checkpoint, number of servers assigned) of a model."""
  detail = ListDetail(model_id, options)
  return detail.model, detail.ckpt, detail.active_replicas


def ListDetail(
    model_id: str, options: AdminOptions | None = None
) -> ModelDetail:
  """What is known of a model; raises NotFound if it is not published."""
  published = _admin(model_id).list_one(model_id, _timeout(options))
  return ModelDetail(
      model=published.model.model_path,
      ckpt=published.model.checkpoint_path,
      max_replicas=published.model.requested_num_replicas,
      active_replicas=len(published.modelet_addresses),
      overrides=dict(published.model.overrides),
  )


def ListAll(cell: str, options: AdminOptions | None = None) -> list[str]:
  """Ids of a cell's models, in no order."""
  published = admin_client.get(cell).list_all(_timeout(options))
  return [item.model.model_id for item in published]


def Stats(
    cell_or_model_id: str, options: AdminOptions | None = None
) -> list[tuple[str, str, int]]:
  """Counts model servers of a cell, or those assigned to a model.

  Returns:
    (chip type, chip topology, number of servers) per kind.
  """
  parsed = ids.parse_cell_or_model_id(cell_or_model_id)
  if isinstance(parsed, ids.CellId):
    cell, model_id = str(parsed), ''
  else:
    cell, model_id = parsed.cell, str(parsed)
  response = admin_client.get(cell).stats(model_id, _timeout(options))
  server = admin_pb2.ModelServer
  return [
      (
          server.ChipType.Name(item.chip_type),
          server.ChipTopology.Name(item.chip_topology),
          item.num_replicas,
      )
      for item in response.model_server_type_stats
  ]


def WaitForReady(
    model_id: str, num_replicas: int, options: AdminOptions | None = None
) -> None:
  """Waits until so many replicas of a model can serve.

  Raises:
    NotFound: the model is not published.
    Cancelled: it was unpublished meanwhile.
    DeadlineExceeded: time is up.
  """
  _admin(model_id).wait_for_ready(model_id, num_replicas, _timeout(options))


def GetACL(
    cell_or_model_id: str,
    method: str = '',
    options: AdminOptions | None = None,
) -> str | dict[str, str]:
  """The ACL of a cell, a model or one of its methods; "" if there is none.

  With method "all" it is a dict from method to ACL.
  """
  parsed = ids.parse_cell_or_model_id(cell_or_model_id)
  if isinstance(parsed, ids.CellId):
    return acl_lib.get_cell_acl(str(parsed))
  if not method:
    return acl_lib.get_model_acl(str(parsed), _timeout(options))
  items = acl_lib.get_method_acls(str(parsed), _timeout(options))
  return items if method == acl_lib.ALL else items.get(method, '')


def SetACL(
    cell_or_model_id: str,
    acl: str,
    method: str = '',
    options: AdminOptions | None = None,
) -> None:
  """Sets the ACL of a cell, a model or one of its methods."""
  parsed = ids.parse_cell_or_model_id(cell_or_model_id)
  if isinstance(parsed, ids.CellId):
    acl_lib.set_cell_acl(str(parsed), acl)
  elif method:
    acl_lib.set_method_acl(str(parsed), method, acl, _timeout(options))
  else:
    acl_lib.set_model_acl(str(parsed), acl, _timeout(options))
