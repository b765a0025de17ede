"""Tests an admin server that lacks CPU time, also because of huge publishes."""

import dataclasses
import threading
import time

import grpc

from saxml_ext.common import grpc_util
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from tests.chaos import processes

_CLIENTS = 4
# A starved process runs for 50 ms. Then it stops for longer than a lease.
_RUNS_SECS = 0.05
_STOPS_SECS = 2.4
_PAUSE_SECS = 0.02
_QUIET_SECS = 1.0


@dataclasses.dataclass
class Result:
  """The observations of clients of the only admin server.

  Attributes:
    calls: The number of calls that list the models.
    failed: The status and text of each of these calls that failed.
    slowest_secs: The duration of the longest of these calls.
    answers: The status code of each huge publish; "OK" if it was accepted.
    back_secs: The time from the end of the trouble until a change succeeds.
  """

  calls: int = 0
  failed: list[str] = dataclasses.field(default_factory=list)
  slowest_secs: float = 0.0
  answers: list[str] = dataclasses.field(default_factory=list)
  back_secs: float = 0.0


class _Clients:
  """Threads that list the models without any retry until the end."""

  def __init__(self, address: str, result: Result):
    self._address = address
    self._result = result
    self._lock = threading.Lock()
    self._connected = threading.Barrier(_CLIENTS + 1)
    self._ended = threading.Event()
    self._threads = [
      threading.Thread(target=self._run) for _ in range(_CLIENTS)
    ]

  def __enter__(self) -> '_Clients':
    for thread in self._threads:
      thread.start()
    self._connected.wait(processes.PATIENCE)
    return self

  def __exit__(self, *unused) -> None:
    self._ended.set()
    for thread in self._threads:
      thread.join()

  def _run(self) -> None:
    with grpc_util.channel(self._address) as channel:
      stub = admin_pb2_grpc.AdminStub(channel)
      stub.List(admin_pb2.ListRequest(), timeout=processes.PATIENCE)
      self._connected.wait(processes.PATIENCE)
      while not self._ended.wait(_PAUSE_SECS):
        failed = []
        begin = time.monotonic()
        try:
          stub.List(admin_pb2.ListRequest(), timeout=processes.PATIENCE)
        except grpc.RpcError as e:
          failed.append(f'{e.code().name}: {e.details()}')
        secs = time.monotonic() - begin
        with self._lock:
          self._result.calls += 1
          self._result.failed += failed
          self._result.slowest_secs = max(self._result.slowest_secs, secs)


def _request(name: str, overrides: int = 0) -> bytes:
  model = admin_pb2.Model(
    model_id=f'{processes.CELL}/{name}',
    model_path='p.A',
    checkpoint_path='None',
    overrides={f'K{i:06d}': '1' for i in range(overrides)},
  )
  return admin_pb2.PublishRequest(model=model).SerializeToString()


def _publish(address: str, request: bytes) -> str:
  """Publishes a model; returns the name of the status code."""
  with grpc_util.channel(address) as channel:
    try:
      # The request is sent as bytes, because encoding it would take a second
      # here.
      channel.unary_unary('/sax.Admin/Publish')(
        request, timeout=processes.PATIENCE
      )
    except grpc.RpcError as e:
      return e.code().name
  return 'OK'


def _wait_for_change(address: str, result: Result) -> None:
  begin = time.monotonic()
  request = _request('after')
  processes.wait(lambda: _publish(address, request) in ('OK', 'ALREADY_EXISTS'))
  result.back_secs = time.monotonic() - begin


def starve(directory: str, secs: float) -> Result:
  """Limits the only admin server to 2 % of a CPU for some seconds."""
  result = Result()
  with processes.Cell(directory) as cell:
    admin = cell.admin()
    address = cell.wait_for_leader()
    with _Clients(address, result):
      until = time.monotonic() + secs
      while time.monotonic() < until:
        admin.stop()
        time.sleep(_STOPS_SECS)
        admin.go_on()
        time.sleep(_RUNS_SECS)
      _wait_for_change(address, result)
  return result


def override(directory: str, overrides: int, publishes: int) -> Result:
  """Publishes models with this many overrides on the only admin server."""
  result = Result()
  requests = [_request(f'm{n}', overrides) for n in range(publishes)]
  with processes.Cell(directory) as cell:
    cell.admin()
    address = cell.wait_for_leader()
    with _Clients(address, result):
      time.sleep(_QUIET_SECS)
      for request in requests:
        result.answers.append(_publish(address, request))
      time.sleep(_QUIET_SECS)
      _wait_for_change(address, result)
  return result
