"""Calls to a cell's admin server, and the models that it lists."""

from collections.abc import Iterable, Mapping
import dataclasses
import math
import threading
import time
from typing import Any

import grpc

from saxml_ext.client.transport import attempts as attempts_lib
from saxml_ext.client.transport import blocking
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.security import tls
from saxml_ext.common.telemetry import tracing
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.protobuf import common_pb2

_RETRIED = frozenset(
  {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}
)

# A server that ends may hang up as well; one that does so for so many seconds
# wants something else of its clients.
_HANG_UPS_SECS = 3.0

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
    replicas: The state of each replica. Stock admin servers do not report it;
      then it is empty.
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
  """Returns a replica; `status` is a `common_pb2.ModelStatus`."""
  if status:
    name = common_pb2.ModelStatus.Name(status)
  else:
    name = UNKNOWN if address else MISSING
  return Replica(address, name, reason, tuple(hosts))


def detail_of(published: admin_pb2.PublishedModel) -> ModelDetail:
  """Returns what an answer to List says of a model."""
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


class AdminClient:
  """The admin server of one cell.

  Its address is read from the cell's location.proto before the first call,
  and again after every call that could not reach it, so that a new leader is
  found. Every call has the errors of `call`.

  Attributes:
    last_error: The error of the latest attempt; None if that went well.
  """

  def __init__(self, root: str, cell: str, transport: blocking.Transport):
    """Connects later; `root` is `sax_root`, and `cell` is "/sax/<cell>"."""
    self._root = root
    self._cell = cell
    self._transport = transport
    self._lock = transport.lock()
    self._address = ''
    self._tls: object = None
    self._answered = False
    self._hung_up_since = math.inf
    self._stub: admin_pb2_grpc.AdminStub | None = None
    self._stale = True
    self.last_error: errors.SaxError | None = None

  async def call(self, method: str, request: Any, timeout: float | None) -> Any:
    """Calls the admin server until it answers.

    Args:
      method: A method of sax.Admin, "Publish".
      request: its request message.
      timeout: seconds for all attempts together; None for no limit.

    Returns:
      The response message.

    Raises:
      FailedPrecondition: the cell or its admin server was never set up.
      DeadlineExceeded: time is up; the text has the last error before.
      SaxError: any other answer of the admin server.
    """
    subject = _subject(request) or self._cell
    what = f'{method} of {subject}'
    attempts = attempts_lib.Retry(what, timeout, _RETRIED)

    async def attempt() -> Any:
      try:
        rpc = getattr(await self._connect(), method)
        response = await self._transport.send(
          rpc, request, attempts.remaining()
        )
      except grpc.RpcError as e:
        self.last_error = error = self._error(e)
        if isinstance(error, (errors.Unavailable, errors.FailedPrecondition)):
          self._stale = True
          raise error from e
        raise
      except errors.SaxError as e:
        self.last_error = e
        raise
      self.last_error = None
      self._answered = True
      return response

    with tracing.outgoing_call(f'sax.Admin/{method}', subject):
      return await attempts.run(attempt, self._transport.sleep)

  def _error(self, raised: grpc.RpcError) -> errors.SaxError:
    error = errors.from_rpc_error(raised)
    if not self._answered and self._is_set_up_wrongly(raised.details() or ''):
      # Whoever is set up wrongly is told soon. A client that is at work goes
      # on with what it knows, until somebody renews a certificate.
      return errors.FailedPrecondition(error.message)
    if not isinstance(error, errors.Cancelled):
      return error
    # Nobody cancels on this side: the server gave up its calls to stop.
    return errors.Unavailable(
      f'the admin server at {self._address} ended the call: {error.message}'
    )

  def _is_set_up_wrongly(self, details: str) -> bool:
    """Returns whether TLS is known to prevent the connection."""
    if not errors.is_hung_up(details):
      self._hung_up_since = math.inf
      return errors.is_certain_tls(details)
    now = time.monotonic()
    self._hung_up_since = min(self._hung_up_since, now)
    return now >= self._hung_up_since + _HANG_UPS_SECS

  async def _connect(self) -> admin_pb2_grpc.AdminStub:
    if self._stub is not None and not self._stale:
      return self._stub
    async with self._lock:
      stub = self._stub
      if stub is None or self._stale:
        location = await self._transport.read(
          cell_files.read_location, self._root, self._cell
        )
        version = tls.version()
        if (
          stub is None
          or location.location != self._address
          or version is not self._tls
        ):
          # The old channel is let go, not closed: other calls may still wait
          # for its answers.
          channel = self._transport.channel(location.location)
          self._stub = stub = admin_pb2_grpc.AdminStub(channel)
          self._address, self._tls = location.location, version
        self._stale = False
      return stub

  async def list_one(
    self, model_id: str, timeout: float | None
  ) -> admin_pb2.PublishedModel:
    """Returns a published model; raises NotFound if there is none."""
    request = admin_pb2.ListRequest(model_id=model_id)
    response = await self.call('List', request, timeout)
    if len(response.published_models) != 1:
      raise errors.Internal(
        f'the admin server of {self._cell} answered '
        f'{len(response.published_models)} models named {model_id}, not 1'
      )
    return response.published_models[0]


def _subject(request: Any) -> str:
  """Returns the id of the model that a request is about; "" for none."""
  if 'model' in request.DESCRIPTOR.fields_by_name:
    return request.model.model_id
  return request.model_id


_lock = threading.Lock()
_root: str | None = None


def set_root(root: str) -> None:
  """Sets the root of all cells for this process, before SAX_ROOT."""
  global _root
  _root = root


def root() -> str:
  """Returns the root of all cells; raises FailedPrecondition for none."""
  return cell_files.sax_root(_root)


def get(
  cell: str, transport: blocking.Transport = blocking.TRANSPORT
) -> AdminClient:
  """Returns the transport's client of a cell "/sax/<cell>".

  Raises:
    InvalidArgument: the id is malformed.
    FailedPrecondition: the root of all cells is not known.
  """
  key = root(), str(ids.parse_cell_id(cell))
  with _lock:
    clients = transport.admin_clients
    if key not in clients:
      clients[key] = AdminClient(*key, transport)
    return clients[key]
