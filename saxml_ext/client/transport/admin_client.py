"""Calls to a cell's admin server, wherever it is at the moment."""

import math
import threading
import time
from typing import Any

import grpc

from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import retry
from saxml_ext.client.transport import transport as transport_lib
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.security import tls
from saxml_ext.common.telemetry import tracing
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_RETRIED = frozenset(
  {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
  }
)

# A server that ends may hang up as well; one that does so for so many seconds
# wants something else of its clients.
_HANG_UPS_SECS = 3.0


class AdminClient:
  """The admin server of one cell.

  Its address is read from the cell's location.proto before the first call,
  and again after every call that could not reach it, so that a new leader is
  found. Every call has the errors of `call`.
  """

  def __init__(self, root: str, cell: str, transport: transport_lib.Transport):
    """`root` is `sax_root`; `cell` is "/sax/<cell>". Connects later."""
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
    self._last_error: errors.SaxError | None = None

  @property
  def last_error(self) -> errors.SaxError | None:
    """Error of the latest attempt; None if that went well."""
    return self._last_error

  async def call(self, method: str, request: Any, timeout: float | None) -> Any:
    """Calls the admin server until it answers.

    Args:
      method: of sax.Admin, "Publish".
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
    attempts = retry.Retry(what, timeout, _RETRIED)

    async def attempt() -> Any:
      try:
        rpc = getattr(await self._connect(), method)
        response = await self._transport.send(
          rpc, request, attempts.remaining()
        )
      except grpc.RpcError as e:
        self._last_error = error = self._error(e)
        if isinstance(error, (errors.Unavailable, errors.FailedPrecondition)):
          self._stale = True
          raise error from e
        raise
      except errors.SaxError as e:
        self._last_error = e
        raise
      self._last_error = None
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
    """Whether TLS does not let a connection come about, as far as is known."""
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

  async def publish(
    self, model: admin_pb2.Model, timeout: float | None
  ) -> None:
    """Publishes a model; AlreadyExists if its id is taken."""
    await self.call('Publish', admin_pb2.PublishRequest(model=model), timeout)

  async def unpublish(self, model_id: str, timeout: float | None) -> None:
    """Unpublishes a model; NotFound if it is not published."""
    request = admin_pb2.UnpublishRequest(model_id=model_id)
    await self.call('Unpublish', request, timeout)

  async def update(self, model: admin_pb2.Model, timeout: float | None) -> None:
    """Replaces a published model's record; NotFound if there is none."""
    request = admin_pb2.UpdateRequest(model=model)
    # Sent also when their map is empty, as other clients do.
    request.model.acls.SetInParent()
    await self.call('Update', request, timeout)

  async def list_one(
    self, model_id: str, timeout: float | None
  ) -> admin_pb2.PublishedModel:
    """One published model; NotFound if it is not published."""
    request = admin_pb2.ListRequest(model_id=model_id)
    response = await self.call('List', request, timeout)
    if len(response.published_models) != 1:
      raise errors.Internal(
        f'the admin server of {self._cell} answered '
        f'{len(response.published_models)} models named {model_id}, not 1'
      )
    return response.published_models[0]

  async def list_all(
    self, timeout: float | None
  ) -> list[admin_pb2.PublishedModel]:
    """Every published model, in no order."""
    response = await self.call('List', admin_pb2.ListRequest(), timeout)
    return list(response.published_models)

  async def stats(
    self, model_id: str, timeout: float | None
  ) -> admin_pb2.StatsResponse:
    """Counts of the model's servers, or of every server if it is ""."""
    request = admin_pb2.StatsRequest(model_id=model_id)
    return await self.call('Stats', request, timeout)

  async def wait_for_ready(
    self, model_id: str, num_replicas: int, timeout: float | None
  ) -> None:
    """Waits until so many replicas have loaded a model."""
    request = admin_pb2.WaitForReadyRequest(
      model_id=model_id, num_replicas=num_replicas
    )
    await self.call('WaitForReady', request, timeout)

  async def watch_loc(
    self,
    model_id: str,
    admin_server_id: str,
    seqno: int,
    timeout: float | None,
  ) -> admin_pb2.WatchLocResponse:
    """Waits for changes of a model's addresses."""
    request = admin_pb2.WatchLocRequest(
      model_id=model_id, admin_server_id=admin_server_id, seqno=seqno
    )
    return await self.call('WatchLoc', request, timeout)


def _subject(request: Any) -> str:
  """Id of the model that a request is about; "" if it is about none."""
  if 'model' in request.DESCRIPTOR.fields_by_name:
    return request.model.model_id
  return request.model_id


_lock = threading.Lock()
_root: str | None = None


def set_root(root: str) -> None:
  """Names the root of all cells for this process, before SAX_ROOT."""
  global _root
  _root = root


def root() -> str:
  """The root of all cells; FailedPrecondition if it is not known."""
  return cell_files.sax_root(_root)


def get(
  cell: str, transport: transport_lib.Transport = blocking.TRANSPORT
) -> AdminClient:
  """The transport's client of a cell "/sax/<cell>".

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
