"""Measures publish times and the admin server's memory in a large cell.

All processes are on one machine: an admin server, a process with fake model
servers, a process with watching clients (one connection each), and one client
that publishes.
"""

import dataclasses
import pathlib
import time

from saxml_ext.common import grpc_util
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from tests.chaos import processes

_PAUSE = 0.02


@dataclasses.dataclass
class Result:
  """The result of a run: times in seconds, memory in bytes.

  Attributes:
    filling: The durations of the first publishes.
    publishing: The durations of publishes in the full cell, with all watchers.
    unpublishing: The durations of unpublishes in the full cell.
    memory: The resident set size of the admin server at the end.
    cpu: The CPU seconds per second of the admin server in the full cell.
    loaded: The number of models that are loaded at the end.
  """

  filling: list[float] = dataclasses.field(default_factory=list)
  publishing: list[float] = dataclasses.field(default_factory=list)
  unpublishing: list[float] = dataclasses.field(default_factory=list)
  memory: int = 0
  cpu: float = 0.0
  loaded: int = 0


def run(
  directory: str, models: int, servers: int, watchers: int, rounds: int
) -> Result:
  """Fills a cell, then adds and removes `rounds` models, one at a time."""
  result = Result()
  with processes.Cell(directory) as cell:
    admin = cell.admin()
    cell.wait_for_leader()
    cell.start('tests.chaos.fake_server', [f'--count={servers}'])
    with grpc_util.channel(admin.address) as channel:
      stub = admin_pb2_grpc.AdminStub(channel)
      processes.wait(lambda: _joined(stub) == servers, pause=0.5)
      for number in range(models):
        result.filling.append(_publish(stub, number))
      cell.start(
        'tests.chaos.watchers', [f'--count={watchers}', f'--models={models}']
      )
      started, used = time.monotonic(), _cpu(admin)
      for number in range(rounds):
        result.publishing.append(_publish(stub, models + number))
        time.sleep(_PAUSE)
        # Loaded models are removed too, so that servers become free.
        result.unpublishing.append(_unpublish(stub, number))
        time.sleep(_PAUSE)
      result.cpu = (_cpu(admin) - used) / (time.monotonic() - started)
      listed = stub.List(admin_pb2.ListRequest(), timeout=30)
      result.loaded = sum(
        bool(p.modelet_addresses) for p in listed.published_models
      )
      result.memory = _memory(admin)
  return result


def _publish(stub: admin_pb2_grpc.AdminStub, number: int) -> float:
  request = admin_pb2.PublishRequest(
    model=admin_pb2.Model(
      model_id=f'{processes.CELL}/m{number}',
      model_path='p.A',
      checkpoint_path=f'/models/checkpoint-{number}',
      requested_num_replicas=1,
    )
  )
  started = time.monotonic()
  stub.Publish(request, timeout=30)
  return time.monotonic() - started


def _unpublish(stub: admin_pb2_grpc.AdminStub, number: int) -> float:
  request = admin_pb2.UnpublishRequest(model_id=f'{processes.CELL}/m{number}')
  started = time.monotonic()
  stub.Unpublish(request, timeout=30)
  return time.monotonic() - started


def _joined(stub: admin_pb2_grpc.AdminStub) -> int:
  stats = stub.Stats(admin_pb2.StatsRequest(), timeout=30)
  return sum(s.num_replicas for s in stats.model_server_type_stats)


def _memory(process: processes.Process) -> int:
  status = pathlib.Path(f'/proc/{process.popen.pid}/status').read_text()
  [line] = [x for x in status.splitlines() if x.startswith('VmRSS:')]
  return int(line.split()[1]) * 1024


def _cpu(process: processes.Process) -> float:
  stat = pathlib.Path(f'/proc/{process.popen.pid}/stat').read_text()
  fields = stat.rpartition(')')[2].split()
  # The sum of utime and stime, in ticks.
  return (int(fields[11]) + int(fields[12])) / 100
