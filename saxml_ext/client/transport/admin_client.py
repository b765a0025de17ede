"""Calls a cell's admin server, and describes the models that it lists."""

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

# A server that stops may close connections as well. If connections are closed
# for longer than this many seconds, the TLS settings do not match.
_HANG_UPS_SECS = 3.0

LOADED = 'LOADED'
LOADING = 'LOADING'
FAILED = 'FAILED'
# UNKNOWN is for a server that cannot report its state, MISSING for a replica
# without a server.
UNKNOWN = 'UNKNOWN'
MISSING = 'MISSING'


@dataclasses.dataclass(frozen=True)
class Replica:
  """A replica of a model.

  Attributes:
    address: The "host:port" of its server; "" for a replica without a server.
    status: The state: 'LOADING', 'LOADED', 'FAILED', 'UNLOADING', 'UNKNOWN' or
      'MISSING'.
    reason: The reason why it does not serve; "" if unknown.
    hosts: The names of the hosts if a group of hosts serves it, starting with
      the host that has the address. Empty for a server on one host.
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
    model: The registered name of its serving params.
    ckpt: The path of its checkpoint.
    max_replicas: The requested number of replicas.
    active_replicas: The number of servers assigned to it.
    overrides: The values, as JSON, by attribute of the serving params.
    model_id: The model id, "/sax/<cell>/<model>".
    method_names: The data methods that its replicas serve, as far as known.
    acls: The ACL that admits callers, by data method.
    addresses: The "host:port" of each assigned server.
    replicas: The state of each replica. It is empty if the admin server does
      not report it, as stock ones do not.
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
  """Returns the details of a model from an answer to List."""
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
  """A client of the admin server of one cell.

  The address is read from the cell's location.proto before the first call. It
  is read again after every call that could not reach the server, so that a new
  leader is found. Every call raises the errors of `call`.

  Attributes:
    last_error: The error of the latest attempt; None if it succeeded.
  """

  def __init__(self, root: str, cell: str, transport: blocking.Transport):
    """Sets the root directory and the cell "/sax/<cell>"; connects later."""
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
      method: A method of sax.Admin, for example "Publish".
      request: The request message.
      timeout: The time limit of all attempts together, in seconds; None for no
        limit.

    Returns:
      The response message.

    Raises:
      FailedPrecondition: The cell or its admin server was never set up.
      DeadlineExceeded: The time limit passed. The message has the last error
        before it.
      SaxError: The admin server answered with another error.
    """
    subject = _subject(request) or self._cell
    attempts = attempts_lib.Retry(f'{method} of {subject}', timeout, _RETRIED)

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
      # A new client fails at once if its setup is wrong. A client that has
      # worked before continues with known addresses until a certificate is
      # renewed.
      return errors.FailedPrecondition(error.message)
    if not isinstance(error, errors.Cancelled):
      return error
    # This client never cancels calls. The server cancelled its calls because it
    # stops.
    return errors.Unavailable(
      f'the admin server at {self._address} ended the call: {error.message}'
    )

  def _is_set_up_wrongly(self, details: str) -> bool:
    """Returns True if wrong TLS settings certainly prevent the connection."""
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
          # The old channel is not closed, because other calls may still wait
          # for answers on it.
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
        f'the admin server of {self._cell} returned'
        f' {len(response.published_models)} models named {model_id}, not 1'
      )
    return response.published_models[0]


def _subject(request: Any) -> str:
  """Returns the id of the model that a request concerns, or "" for none."""
  if 'model' in request.DESCRIPTOR.fields_by_name:
    return request.model.model_id
  return request.model_id


_lock = threading.Lock()
_root: str | None = None


def set_root(root: str) -> None:
  """Sets the root of all cells for this process; overrides SAX_ROOT."""
  global _root
  _root = root


def root() -> str:
  """Returns the root of all cells; raises FailedPrecondition if not set."""
  return cell_files.sax_root(_root)


def get(
  cell: str, transport: blocking.Transport = blocking.TRANSPORT
) -> AdminClient:
  """Returns the transport's client of a cell "/sax/<cell>".

  Raises:
    InvalidArgument: The id is malformed.
    FailedPrecondition: The root of all cells is not set.
  """
  key = root(), str(ids.parse_cell_id(cell))
  with _lock:
    clients = transport.admin_clients
    if key not in clients:
      clients[key] = AdminClient(*key, transport)
    return clients[key]
