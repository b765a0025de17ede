"""Tests that losing processes of groups causes no failed requests.

Two groups serve one model. In each round, a process of one group is killed, or
stopped and continued, while the other group serves. Its own group may serve or
be starting at that time. Each process has a supervisor that restarts it, as
systemd does on separate hosts.
"""

from collections.abc import Iterable, Iterator
import contextlib
import dataclasses
import importlib.util
import os
import random
import signal
import sys
import time

from saxml_ext.common import net
from saxml_ext.protobuf import admin_pb2
from serve import children
from serve import programs
from tests.chaos import evictions
from tests.chaos import load as load_lib
from tests.chaos import processes
from tests.groups import supervised

SERVER = 'tests.groups.group_server'
PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
_MODEL = processes.CELL + '/m'
_COMPLETED = 'completed'
_GROUPS = 2
# The maximum delays of random losses. The first is counted from the time when
# the group serves. The second is counted from the previous loss, so that it can
# hit any point of a start.
_SERVE_SECS = 1.5
_START_SECS = 12.0
# The share of losses that hit a serving group, and the share of processes that
# are stopped and not killed.
_SERVING = 0.75
_STOPPED = 0.2


@dataclasses.dataclass(frozen=True)
class Loss:
  """The loss of one process.

  Attributes:
    group: The group, 0 or 1.
    process: The number of the process in the group.
    delay: The seconds to wait before the loss.
    serving: True if the delay begins when the group serves. Otherwise, it
      begins at once, so the process may be at any point of its start.
    stopped: True to stop the process until the others have ended, instead of
      killing it. It has no effect if its group does not serve.
  """

  group: int
  process: int
  delay: float = 0.5
  serving: bool = True
  stopped: bool = False


def at_random(count: int, size: int, seed: int) -> list[Loss]:
  """Returns losses of random processes at random times.

  Args:
    count: The number of losses.
    size: The number of processes of a group.
    seed: The seed of the choice.
  """
  rng = random.Random(seed)

  def loss() -> Loss:
    serving = rng.random() < _SERVING
    return Loss(
      rng.randrange(_GROUPS),
      rng.randrange(size),
      rng.uniform(0.0, _SERVE_SECS if serving else _START_SECS),
      serving,
      rng.random() < _STOPPED,
    )

  return [loss() for _ in range(count)]


@dataclasses.dataclass
class Result(load_lib.Counts):
  """The result of a run.

  Attributes:
    kills: The number of kills by process, "group 0, process 1".
    stopped: The number of processes that were only stopped until their group
      ended.
    starting: The number of processes whose group did not serve yet.
    gone_secs: The seconds from each loss in a serving group until clients know.
    reasons: The reason of the admin server for each of these losses.
    zeros: The processes that ended with exit code 0.
  """

  kills: dict[str, int] = dataclasses.field(default_factory=dict)
  stopped: int = 0
  starting: int = 0
  gone_secs: list[float] = dataclasses.field(default_factory=list)
  reasons: list[str] = dataclasses.field(default_factory=list)
  zeros: int = 0


class Group:
  """A model server of several processes.

  Attributes:
    address: The address of its process 0.
    members: The processes, in the order of their ids.
  """

  def __init__(
    self,
    group: children.Children,
    cell: processes.Cell,
    name: str,
    size: int,
    flags: list[str],
    program: str = SERVER,
  ):
    """Starts the processes.

    Args:
      group: The object that owns the processes.
      cell: The cell to join.
      name: The name in messages.
      size: The number of processes.
      flags: The flags of each process.
      program: The module of the model server.
    """
    ports = [net.pick_free_port() for _ in range(size)]
    coordinator = f'127.0.0.1:{net.pick_free_port()}'
    self.address = f'127.0.0.1:{ports[0]}'
    self.members = []
    spec = importlib.util.find_spec(program)
    if spec is None or spec.origin is None:
      raise ValueError(f'there is no module {program}')
    env = {
      **os.environ,
      'PYTHONPATH': os.pathsep.join(sys.path),
      net.LOOPBACK_VARIABLE: '1',
    }
    for process, port in enumerate(ports):
      args = [f'--sax_root={cell.root}', f'--sax_cell={processes.CELL}']
      args.append(f'--port={port}')
      if size > 1:
        args.append(f'--coordinator_address={coordinator}')
        args.append(f'--num_processes={size}')
        args.append(f'--process_id={process}')
      self.members.append(
        supervised.Supervised(
          group,
          f'{name}, process {process}',
          programs.Command((sys.executable, spec.origin, *args, *flags), env),
          str(cell.path),
        )
      )


@contextlib.contextmanager
def started(
  directory: str, size: int, flags: list[str], program: str = SERVER
) -> Iterator[tuple[processes.Cell, list[Group]]]:
  """Runs a cell in which two groups serve a model, until the context ends.

  Args:
    directory: An empty directory.
    size: The number of processes of a group.
    flags: The flags of each process.
    program: The module of the model servers.
  """
  with processes.Cell(directory) as cell, children.Children() as group:
    cell.admin()
    cell.wait_for_leader()
    model = admin_pb2.Model(
      model_id=_MODEL,
      model_path=PARAMS,
      # Engines that answer at once do not read the checkpoint.
      checkpoint_path=directory,
      requested_num_replicas=_GROUPS,
    )
    cell.call('Publish', admin_pb2.PublishRequest(model=model))
    groups = [
      Group(group, cell, f'group {number}', size, flags, program)
      for number in range(_GROUPS)
    ]
    for model_server in groups:
      wait_until_up(cell, model_server)
    yield cell, groups


def is_up(cell: processes.Cell, group: Group) -> bool:
  """Returns True if clients get the address of the group."""
  return group.address in evictions.addresses(cell, _MODEL)


def wait_until_up(cell: processes.Cell, group: Group) -> None:
  processes.wait(lambda: is_up(cell, group))


def run(
  directory: str,
  losses: Iterable[Loss],
  *,
  size: int = 2,
  step_secs: float = 0.5,
  rate: float = 20.0,
) -> Result:
  """Makes processes fail while requests are sent.

  Args:
    directory: An empty directory.
    losses: The losses, in this order.
    size: The number of processes of a group.
    step_secs: The duration of requests in the engines.
    rate: The number of requests per second.
  """
  result = Result(rate=rate)
  completed = os.path.join(directory, _COMPLETED)
  flags = [f'--step_secs={step_secs}', f'--completed={completed}']
  with started(directory, size, flags) as (cell, groups):
    with load_lib.Load(cell.root, _MODEL, result):
      for loss in losses:
        while not _take(cell, groups, loss, result):
          pass  # The process was between two starts.
      for group in groups:
        wait_until_up(cell, group)
    result.count(cell.path / _COMPLETED)
    for group in groups:
      for member in group.members:
        result.zeros += member.log.read_text().count(supervised.ENDED_WITH_0)
  return result


def _take(
  cell: processes.Cell, groups: list[Group], loss: Loss, result: Result
) -> bool:
  """Makes a process fail while the other group is up.

  Returns:
    True if there was such a process.
  """
  victim, other = groups[loss.group], groups[1 - loss.group]
  if loss.serving:
    wait_until_up(cell, victim)
  time.sleep(loss.delay)
  wait_until_up(cell, other)
  served = is_up(cell, victim)
  stop = loss.stopped and served
  member = victim.members[loss.process]
  starts = [process.starts for process in victim.members]
  if not member.send(signal.SIGSTOP if stop else signal.SIGKILL):
    return False
  lost = time.monotonic()
  result.kills[member.name] = result.kills.get(member.name, 0) + 1
  result.stopped += stop
  if not served:
    result.starting += 1
    return True
  processes.wait(lambda: not is_up(cell, victim))
  result.gone_secs.append(time.monotonic() - lost)
  result.reasons.append(evictions.reasons(cell)[-1])
  # All processes of the group must end and start again together.
  for process, before in zip(victim.members, starts, strict=True):
    if process is not member:
      processes.wait(lambda e=process, b=before: e.starts > b)
  if stop:
    member.send(signal.SIGCONT)
  processes.wait(lambda: member.starts > starts[loss.process])
  return True
