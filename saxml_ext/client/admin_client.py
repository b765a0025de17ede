"""Calls to a cell's admin server, wherever it is at the moment."""

import threading
import time
from typing import Any

import grpc

from saxml_ext.client import retry
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import grpc_util
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_RETRIED = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)


class AdminClient:
  """The admin server of one cell.

  Its address is read from the cell's location.proto before the first call,
  and again after every call that could not reach it, so that a new leader is
  found. Thread-safe; every call has the errors of `call`.
  """

  def __init__(self, root: str, cell: str):
    """`root` is `sax_root`; `cell` is "/sax/<cell>". Connects later."""
    self._root = root
    self._cell = cell
    self._lock = threading.Lock()
    self._address = ''
    self._channel: grpc.Channel | None = None
    self._stub: admin_pb2_grpc.AdminStub | None = None
    self._stale = True
    self._last_error: errors.SaxError | None = None

  @property
  def last_error(self) -> errors.SaxError | None:
    """Error of the latest attempt; None if that went well."""
    return self._last_error

  def call(self, method: str, request: Any, timeout: float | None) -> Any:
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
    what = f'{method} of {_subject(request) or self._cell}'
    attempts = retry.Retry(what, timeout, _RETRIED)
    while True:
      try:
        response = self._call_once(method, request, attempts.remaining())
        self._last_error = None
        return response
      except errors.SaxError as e:
        self._last_error = e
        delay = attempts.delay_after(e)
      time.sleep(delay)

  def _call_once(self, method: str, request: Any, timeout: float | None) -> Any:
    stub = self._connect()
    try:
      return getattr(stub, method)(request, timeout=timeout)
    except grpc.RpcError as e:
      error = errors.from_rpc_error(e)
      if isinstance(error, errors.Cancelled):
        # Nobody cancels on this side: the server gave up its calls to stop.
        error = errors.Unavailable(
            f'the admin server at {self._address} ended the call: '
            + error.message
        )
      if isinstance(error, errors.Unavailable):
        self._stale = True
      raise error from e

  def _connect(self) -> admin_pb2_grpc.AdminStub:
    with self._lock:
      if self._stale:
        address = cell_files.read_location(self._root, self._cell).location
        if address != self._address:
          # The old channel is let go, not closed: calls of other threads may
          # still wait for its answers.
          self._channel = grpc_util.insecure_channel(address)
          self._stub = admin_pb2_grpc.AdminStub(self._channel)
          self._address = address
        self._stale = False
      return self._stub

  def publish(self, model: admin_pb2.Model, timeout: float | None) -> None:
    """Publishes a model; AlreadyExists if its id is taken."""
    self.call('Publish', admin_pb2.PublishRequest(model=model), timeout)

  def unpublish(self, model_id: str, timeout: float | None) -> None:
    """Unpublishes a model; NotFound if it is not published."""
    request = admin_pb2.UnpublishRequest(model_id=model_id)
    self.call('Unpublish', request, timeout)

  def update(self, model: admin_pb2.Model, timeout: float | None) -> None:
    """Replaces a published model's record; NotFound if there is none."""
    self.call('Update', admin_pb2.UpdateRequest(model=model), timeout)

  def list_one(
      self, model_id: str, timeout: float | None
  ) -> admin_pb2.PublishedModel:
    """One published model; NotFound if it is not published."""
    request = admin_pb2.ListRequest(model_id=model_id)
    response = self.call('List', request, timeout)
    if len(response.published_models) != 1:
      raise errors.Internal(
          f'the admin server of {self._cell} answered '
          f'{len(response.published_models)} models named {model_id}, not 1'
      )
    return response.published_models[0]

  def list_all(self, timeout: float | None) -> list[admin_pb2.PublishedModel]:
    """Every published model, in no order."""
    response = self.call('List', admin_pb2.ListRequest(), timeout)
    return list(response.published_models)

  def stats(
      self, model_id: str, timeout: float | None
  ) -> admin_pb2.StatsResponse:
    """Counts of the model's servers, or of every server if it is ""."""
    request = admin_pb2.StatsRequest(model_id=model_id)
    return self.call('Stats', request, timeout)

  def wait_for_ready(
      self, model_id: str, num_replicas: int, timeout: float | None
  ) -> None:
    """Waits until so many replicas have loaded a model."""
    request = admin_pb2.WaitForReadyRequest(
        model_id=model_id, num_replicas=num_replicas
    )
    self.call('WaitForReady', request, timeout)

  def watch_loc(
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
    return self.call('WatchLoc', request, timeout)


def _subject(request: Any) -> str:
  """Id of the model that a request is about; "" if it is about none."""
  if 'model' in request.DESCRIPTOR.fields_by_name:
    return request.model.model_id
  return request.model_id


class _Table:
  """One client per cell, and the root in which cells are looked up."""

  def __init__(self):
    self._lock = threading.Lock()
    self._root: str | None = None
    self._clients: dict[tuple[str, str], AdminClient] = {}

  def set_root(self, root: str) -> None:
    with self._lock:
      self._root = root

  def root(self) -> str:
    return cell_files.sax_root(self._root)

  def get(self, cell: str) -> AdminClient:
    key = self.root(), str(ids.parse_cell_id(cell))
    with self._lock:
      if key not in self._clients:
        self._clients[key] = AdminClient(*key)
      return self._clients[key]


_table = _Table()


def set_root(root: str) -> None:
  """Names the root of all cells for this process, before SAX_ROOT."""
  _table.set_root(root)


def root() -> str:
  """The root of all cells; FailedPrecondition if it is not known."""
  return _table.root()


def get(cell: str) -> AdminClient:
  """This process's client of a cell "/sax/<cell>".

  Raises:
    InvalidArgument: the id is malformed.
    FailedPrecondition: the root of all cells is not known.
  """
  return _table.get(cell)
