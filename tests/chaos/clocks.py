"""Tests admin servers whose wall clocks are off by an hour, and jump.

wall_clock.c gives each process its own wall clock. The monotonic clocks do not
change, as when an operator or NTP sets a machine's clock.
"""

import dataclasses
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

import grpc

from saxml_ext.protobuf import admin_pb2
from tests.chaos import processes

# One clock is an hour ahead, one is an hour behind, and one is right.
_OFFSETS = (3600, -3600, 0)
_MODEL_SERVER = 'tests.chaos.fake_server'
_MODEL = processes.CELL + '/m'
_LIBRARY = pathlib.Path(__file__).with_name('libwall_clock.so')
_PAUSE_SECS = 0.1


@dataclasses.dataclass
class Result:
  """The result of a run.

  Attributes:
    secs: The duration of the run.
    jumps: The number of clock jumps.
    shown: The largest difference between the clocks of two servers, in seconds.
    leaders: The number of changes of the leader.
    doubles: The number of samples in which two servers answered as leaders.
    evictions: The number of changes of the address list.
    looks: The number of samples.
    stalled_secs: The largest delay of a short pause of this process. If the
      machine stalls for the duration of a lease, the leader may change
      independently of the clocks.
  """

  secs: float = 0.0
  jumps: int = 0
  shown: float = 0.0
  leaders: int = 0
  doubles: int = 0
  evictions: int = 0
  looks: int = 0
  stalled_secs: float = 0.0


class _Clock:
  """The wall clock of one process."""

  def __init__(self, path: pathlib.Path, offset: int):
    self._path = path
    path.write_bytes(bytes(8))
    self.set(offset)

  def set(self, offset: int) -> None:
    """Sets the clock's offset in seconds."""
    # The file is changed in place, because running processes have mapped it.
    with self._path.open('r+b') as f:
      f.write(struct.pack('=q', offset))

  def env(self) -> dict[str, str]:
    """Returns the environment of a process that uses this clock."""
    return {
      'LD_PRELOAD': os.fspath(_LIBRARY),
      'WALL_CLOCK_OFFSET': os.fspath(self._path),
    }


def run(directory: str, secs: float) -> Result:
  """Runs three admin servers and a model server, and records changes.

  Args:
    directory: An empty directory.
    secs: The duration of the run.

  Raises:
    FileNotFoundError: wall_clock.c was not compiled. Bazel compiles it.
  """
  if not _LIBRARY.exists():
    raise FileNotFoundError(f'{_LIBRARY}: run this with Bazel, which builds it')
  result = Result(secs=secs)
  clocks = [
    _Clock(pathlib.Path(directory) / f'clock{i}', offset)
    for i, offset in enumerate(_OFFSETS)
  ]
  with processes.Cell(directory) as cell:
    admins = [cell.admin(clock.env()) for clock in clocks]
    server = cell.start(_MODEL_SERVER, [], clocks[0].env())
    leader = cell.wait_for_leader()
    cell.call(
      'Publish',
      admin_pb2.PublishRequest(
        model=admin_pb2.Model(
          model_id=_MODEL,
          model_path='p.A',
          checkpoint_path='None',
          requested_num_replicas=1,
        )
      ),
    )
    processes.wait(lambda: _addresses(leader))
    ends = time.monotonic() + secs
    while time.monotonic() < ends:
      random.choice(clocks).set(random.choice((-3600, -7, 0, 60, 3600)))
      result.jumps += 1
      for _ in range(5):
        begin = time.monotonic()
        time.sleep(_PAUSE_SECS)
        stalled = time.monotonic() - begin - _PAUSE_SECS
        result.stalled_secs = max(result.stalled_secs, stalled)
        _look(admins, leader, server.address, result)
    clocks[0].set(3600)
    clocks[1].set(-3600)
    result.shown = _now(clocks[0]) - _now(clocks[1])
  return result


def _look(
  admins: list[processes.Process],
  leader: str,
  server: str,
  result: Result,
) -> None:
  result.looks += 1
  leaders = [a.address for a in admins if _addresses(a.address) is not None]
  result.doubles += len(leaders) > 1
  result.leaders += leaders != [leader]
  result.evictions += _addresses(leader) != [server]


def _addresses(address: str) -> list[str] | None:
  """Returns the model's addresses from a leader, or None from a standby."""
  try:
    response = processes.call(
      address, 'List', admin_pb2.ListRequest(model_id=_MODEL), 5.0
    )
  except grpc.RpcError:
    return None
  return list(response.published_models[0].modelet_addresses)


def _now(clock: _Clock) -> float:
  """Returns the current time of a process with that clock."""
  return float(
    subprocess.check_output(
      [sys.executable, '-c', 'import time; print(time.time())'],
      env={**os.environ, **clock.env()},
    )
  )
