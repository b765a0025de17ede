"""Measures the time until a dead model server leaves the address list.

A server that is only busy must stay in the list.
"""

import dataclasses
import re
import time

import grpc

from saxml_ext.common import grpc_util
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from tests.chaos import processes

_MODEL_SERVER = 'tests.chaos.fake_server'
_MODEL = processes.CELL + '/m'
# The admin server answers as soon as something changes.
_ANSWER_SECS = 4.0
# The reason for a server whose process ended without notice.
DEATH = 'Connection refused|accepts no connections'


@dataclasses.dataclass
class Result:
  """The result of a run.

  Attributes:
    gone_secs: The seconds from SIGKILL of a server until clients know, by
      round.
    busy_secs: The time for which another server did not answer.
    evicted: True if that server left the list.
    reasons: The reasons for which the admin server gave the servers up.
  """

  gone_secs: list[float] = dataclasses.field(default_factory=list)
  busy_secs: float = 0.0
  evicted: bool = False
  reasons: list[str] = dataclasses.field(default_factory=list)


def run(directory: str, rounds: int, busy_secs: float) -> Result:
  """Kills servers, and then stops one, which looks like a busy server."""
  result = Result(busy_secs=busy_secs)
  with processes.Cell(directory) as cell:
    cell.admin()
    cell.wait_for_leader()
    cell.call(
      'Publish',
      admin_pb2.PublishRequest(
        model=admin_pb2.Model(
          model_id=_MODEL,
          model_path='p.A',
          checkpoint_path='None',
          requested_num_replicas=2,
        )
      ),
    )
    busy = cell.start(_MODEL_SERVER, [])
    for _ in range(rounds):
      server = cell.start(_MODEL_SERVER, [])
      processes.wait(lambda s=server: s.address in addresses(cell, _MODEL))
      server.kill()
      killed = time.monotonic()
      processes.wait(
        lambda s=server: s.address not in addresses(cell, _MODEL), pause=0.01
      )
      result.gone_secs.append(time.monotonic() - killed)
    busy.stop()
    until = time.monotonic() + busy_secs
    while time.monotonic() < until:
      result.evicted |= busy.address not in addresses(cell, _MODEL)
      time.sleep(0.1)
    result.reasons = reasons(cell)
  return result


def reasons(cell: processes.Cell) -> list[str]:
  """Returns the reasons for which the admin server gave servers up."""
  logs = ''.join(log.read_text() for log in cell.path.glob('*.log'))
  return re.findall(r'modelets\.py:\d+\] \S+: lost: (.*)', logs)


def addresses(cell: processes.Cell, model_id: str) -> set[str]:
  """Returns the addresses of a model that a new client gets."""
  with grpc_util.channel(cell.location()) as channel:
    stub = admin_pb2_grpc.AdminStub(channel)
    # A busy machine needs time to connect, so the call waits for it. gRPC's
    # future for a ready channel polls only five times per second.
    stub.Stats(
      admin_pb2.StatsRequest(),
      timeout=processes.PATIENCE,
      wait_for_ready=True,
    )
    try:
      response = stub.WatchLoc(
        admin_pb2.WatchLocRequest(model_id=model_id), timeout=_ANSWER_SECS
      )
    except grpc.RpcError as e:
      if e.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
        raise
      return set()  # There was never an address.
  known = set(response.result.values)
  for change in response.result.changelog:
    if change.addition:
      known.add(change.addition)
    known.discard(change.deletion)
  return known
