"""A published model, as the admin server of its cell lists it."""

from collections.abc import Iterable, Mapping
import dataclasses

from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2

LOADED = 'LOADED'
LOADING = 'LOADING'
FAILED = 'FAILED'
# Of a replica whose server cannot tell how it fares, and of one without server.
UNKNOWN = 'UNKNOWN'
MISSING = 'MISSING'


@dataclasses.dataclass(frozen=True)
class Replica:
  """One of a model's replicas.

  Attributes:
    address: "host:port" of its server; "" for a replica without one.
    status: 'LOADING', 'LOADED', 'FAILED', 'UNLOADING', 'UNKNOWN' or 'MISSING'.
    reason: why it does not serve; "" if that is not known.
    hosts: names of the hosts of a group that serves it together, the one with
      the address first; empty if it is a server of one host.
  """

  address: str
  status: str
  reason: str
  hosts: tuple[str, ...] = ()

  def __str__(self) -> str:
    text = f'{self.address}: {self.status}' if self.address else self.status
    return f'{text} ({self.reason})' if self.reason else text


@dataclasses.dataclass(frozen=True)
class ModelDetail:
  """A published model.

  Attributes:
    model: registered name of its serving params.
    ckpt: its checkpoint.
    max_replicas: replicas asked for.
    active_replicas: servers assigned to it.
    overrides: attribute of the serving params -> value as JSON.
    model_id: "/sax/<cell>/<model>".
    method_names: data methods that its replicas serve, as far as known.
    acls: data method -> ACL that admits its callers.
    addresses: "host:port" of the assigned servers.
    replicas: how each replica fares. Stock admin servers do not tell; then it
      is empty.
  """

  model: str
  ckpt: str
  max_replicas: int
  active_replicas: int
  overrides: Mapping[str, str]
  model_id: str = ''
  method_names: tuple[str, ...] = ()
  acls: Mapping[str, str] = dataclasses.field(default_factory=dict)
  addresses: tuple[str, ...] = ()
  replicas: tuple[Replica, ...] = ()


def replica(
  address: str, status: int, reason: str, hosts: Iterable[str] = ()
) -> Replica:
  """A replica; `status` is a `common_pb2.ModelStatus`."""
  if status:
    name = common_pb2.ModelStatus.Name(status)
  else:
    name = UNKNOWN if address else MISSING
  return Replica(address, name, reason, tuple(hosts))


def of(published: admin_pb2.PublishedModel) -> ModelDetail:
  """What an answer to List says of a model."""
  model = published.model
  return ModelDetail(
    model=model.model_path,
    ckpt=model.checkpoint_path,
    max_replicas=model.requested_num_replicas,
    active_replicas=len(published.modelet_addresses),
    overrides=dict(model.overrides),
    model_id=model.model_id,
    method_names=tuple(model.method_names),
    acls=dict(model.acls.items),
    addresses=tuple(published.modelet_addresses),
    replicas=tuple(
      replica(r.address, r.status, r.reason, r.hosts)
      for r in published.replicas
    ),
  )
