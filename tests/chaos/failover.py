"""Kills or stops a leader with two standbys, again and again.

Meanwhile, a client calls a model of the cell, and models are published. A
stopped leader continues after its successor has taken over. It is then called
directly at once, and must not change anything.
"""

import dataclasses
import threading
import time

import grpc

from saxml_ext.client import sax
from saxml_ext.common import cell as cell_lib
from saxml_ext.common import storage
from saxml_ext.protobuf import admin_pb2
from tests.chaos import processes

_PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
_MODEL = processes.CELL + '/served'
_MODEL_SERVER = 'tests.cell.instant_server'
_SERVERS = 2
_ASK_SECS = 60.0


@dataclasses.dataclass
class Result:
  """The result of a run.

  Attributes:
    takeover_secs: The seconds from the signal until the next leader answers, by
      round.
    stopped: The number of rounds in which the leader was stopped, not killed.
    refused: The number of stopped rounds in which the old leader changed
      nothing after it continued.
    answers: The number of the model's answers.
    failures: The failed calls of the model.
    lost: The acknowledged changes that were missing at the end.
  """

  takeover_secs: list[float] = dataclasses.field(default_factory=list)
  stopped: int = 0
  refused: int = 0
  answers: int = 0
  failures: list[str] = dataclasses.field(default_factory=list)
  lost: int = 0


def _publish(address: str, name: str) -> None:
  processes.call(
    address,
    'Publish',
    admin_pb2.PublishRequest(
      model=admin_pb2.Model(
        model_id=f'{processes.CELL}/{name}',
        model_path='p.A',
        checkpoint_path='None',
      )
    ),
    2.0,
  )


class _Traffic:
  """Threads that call the model and publish other models until the end."""

  def __init__(self, cell: processes.Cell, result: Result):
    self.acknowledged: list[str] = []
    self._cell = cell
    self._result = result
    self._ended = threading.Event()
    self._threads = [
      threading.Thread(target=self._ask),
      threading.Thread(target=self._change),
    ]

  def __enter__(self) -> '_Traffic':
    for thread in self._threads:
      thread.start()
    return self

  def __exit__(self, *unused) -> None:
    self._ended.set()
    for thread in self._threads:
      thread.join()

  def _ask(self) -> None:
    lm = sax.Model(_MODEL).LM()
    while not self._ended.wait(0.01):
      try:
        lm.Generate('1,2,3', sax.ModelOptions(_ASK_SECS))
        self._result.answers += 1
      except Exception as e:  # pylint: disable=broad-exception-caught
        self._result.failures.append(str(e))  # Any failure counts.

  def _change(self) -> None:
    number = 0
    while not self._ended.wait(0.02):
      number += 1
      try:
        _publish(self._cell.location(), f'x{number}')
        self.acknowledged.append(f'{processes.CELL}/x{number}')
      except (grpc.RpcError, ValueError):
        pass  # The change was not acknowledged.


def run(directory: str, rounds: int) -> Result:
  """Stops the leader `rounds` times, by SIGKILL and SIGSTOP in turn."""
  result = Result()
  with processes.Cell(directory) as cell:
    admins = {a.address: a for a in (cell.admin() for _ in range(3))}
    for _ in range(_SERVERS):
      cell.start(_MODEL_SERVER, [])
    leader = cell.wait_for_leader()
    cell.call(
      'Publish',
      admin_pb2.PublishRequest(
        model=admin_pb2.Model(
          model_id=_MODEL,
          model_path=_PARAMS,
          checkpoint_path='None',
          requested_num_replicas=_SERVERS,
        )
      ),
    )
    cell.call(
      'WaitForReady',
      admin_pb2.WaitForReadyRequest(model_id=_MODEL, num_replicas=_SERVERS),
    )
    with _Traffic(cell, result) as traffic:
      for number in range(rounds):
        time.sleep(1.0)
        leader = _round(cell, admins, leader, number, result)
      time.sleep(1.0)
    models = cell.models()
    result.lost = sum(k not in models for k in traffic.acknowledged)
  return result


def _round(
  cell: processes.Cell,
  admins: dict[str, processes.Process],
  leader: str,
  number: int,
  result: Result,
) -> str:
  old = admins[leader]
  stop = number % 2 == 1
  started = time.monotonic()
  if stop:
    old.stop()
  else:
    old.kill()
  new = cell.wait_for_leader(but=[leader])
  result.takeover_secs.append(time.monotonic() - started)
  if stop:
    result.stopped += 1
    result.refused += _is_refused(cell, old, f'old{number}')
  else:
    del admins[leader]
    fresh = cell.admin()
    admins[fresh.address] = fresh
  return new


def _is_refused(
  cell: processes.Cell, old: processes.Process, name: str
) -> bool:
  old.go_on()
  try:
    _publish(old.address, name)
    return False
  except grpc.RpcError as e:
    if e.code() is not grpc.StatusCode.UNAVAILABLE:
      return False
  time.sleep(0.3)  # Any pending write would be done by now.
  data = storage.read_bytes(cell_lib.state_path(cell.fs_root, processes.CELL))
  state = admin_pb2.State.FromString(data)
  published = {m.model_id for m in state.models} | set(cell.models())
  return (
    f'{processes.CELL}/{name}' not in published
    and cell.location() != old.address
  )
