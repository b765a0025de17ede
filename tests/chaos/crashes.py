"""Kills an admin server with SIGKILL while models are published and changed.

One thread changes each model, one call after the other. All fields of a model
contain the number of the call that wrote them, so a partial change is detected.
"""

import dataclasses
import random
import threading
import time

import grpc

from saxml_ext.common import grpc_util
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from tests.chaos import processes

_THREADS = 4
_MAX_SECS = 0.4


@dataclasses.dataclass(frozen=True)
class Result:
  """The result of a run.

  Attributes:
    rounds: The number of kills.
    intact: The number of rounds after which every acknowledged change was
      there, and no change was partial.
    acknowledged: The number of acknowledged changes in all rounds.
    back_secs: The seconds from the start of the next process to its first
      answer.
  """

  rounds: int
  intact: int
  acknowledged: int
  back_secs: list[float]


def _model(model_id: str, number: int) -> admin_pb2.Model:
  return admin_pb2.Model(
    model_id=model_id,
    model_path='p.A',
    checkpoint_path=f'/ckpt/{number}',
    requested_num_replicas=number,
    overrides={'N': str(number)},
  )


class _Writer(threading.Thread):
  """A thread that changes one model until the admin server is gone.

  Attributes:
    allowed: The states that may remain: numbers, or None for no model.
    acknowledged: The number of acknowledged changes.
  """

  def __init__(self, address: str, model_id: str, number: int | None):
    super().__init__(daemon=True)
    self.model_id = model_id
    self.allowed = {number}
    self.acknowledged = 0
    self._address = address
    self._number = number or 0
    self._there = number is not None

  def run(self) -> None:
    with grpc_util.channel(self._address) as channel:
      stub = admin_pb2_grpc.AdminStub(channel)
      try:
        while True:
          self._change(stub)
          self.acknowledged += 1
      except grpc.RpcError as e:
        if e.code() is not grpc.StatusCode.UNAVAILABLE:
          self.allowed = set()  # Only the kill may make a call fail.

  def _change(self, stub: admin_pb2_grpc.AdminStub) -> None:
    before = next(iter(self.allowed))
    self._number += 1
    model = _model(self.model_id, self._number)
    if not self._there:
      call, after = stub.Publish, self._number
      request = admin_pb2.PublishRequest(model=model)
    elif random.random() < 0.3:
      call, after = stub.Unpublish, None
      request = admin_pb2.UnpublishRequest(model_id=self.model_id)
    else:
      call, after = stub.Update, self._number
      request = admin_pb2.UpdateRequest(model=model)
    self.allowed = {before, after}
    call(request, timeout=processes.PATIENCE)
    self.allowed = {after}
    self._there = after is not None


def run(directory: str, rounds: int) -> Result:
  """Kills an admin server `rounds` times."""
  ids = [f'{processes.CELL}/m{i}' for i in range(_THREADS)]
  numbers: dict[str, int | None] = dict.fromkeys(ids)
  intact = acknowledged = 0
  back = []
  with processes.Cell(directory) as cell:
    admin = cell.admin()
    for _ in range(rounds):
      writers = [_Writer(admin.address, k, numbers[k]) for k in ids]
      for writer in writers:
        writer.start()
      time.sleep(random.uniform(0.0, _MAX_SECS))
      admin.kill()
      for writer in writers:
        writer.join(processes.PATIENCE)
      started = time.monotonic()
      admin = cell.admin()
      cell.wait_for_leader()
      back.append(time.monotonic() - started)
      models = cell.models()
      good = True
      for writer in writers:
        model = models.get(writer.model_id)
        number = model.requested_num_replicas if model else None
        good &= number in writer.allowed
        good &= model is None or model == _model(writer.model_id, number)
        numbers[writer.model_id] = number
        acknowledged += writer.acknowledged
      intact += good
  return Result(rounds, intact, acknowledged, back)
