"""Tests that killing model servers under load causes no failed requests.

Three replicas and a spare server get requests at 70 % of the capacity of three.
In each round, one replica is killed, the spare takes its place, and a new
server starts as the next spare.
"""

import dataclasses
import random
import time

from saxml_ext.protobuf import admin_pb2
from tests.chaos import evictions
from tests.chaos import load as load_lib
from tests.chaos import processes

_SERVER = 'tests.cell.instant_server'
_PARAMS = 'saxml_ext.params.gptj.TinyTokenizedFP32'
_MODEL = processes.CELL + '/m'
_REPLICAS = 3
_SLOTS = 32  # The number of slots of these params.
_STEP_SECS = 0.2
_LOAD = 0.7
_PAUSE_SECS = 1.0
_COMPLETED = 'completed'


@dataclasses.dataclass
class Result(load_lib.Counts):
  """The result of a run.

  Attributes:
    gone_secs: The seconds from each kill until clients know about it.
    replaced_secs: The seconds from each kill until there are three replicas
      again.
    reasons: The reasons for which the admin server gave the servers up.
  """

  gone_secs: list[float] = dataclasses.field(default_factory=list)
  replaced_secs: list[float] = dataclasses.field(default_factory=list)
  reasons: list[str] = dataclasses.field(default_factory=list)


def run(
  directory: str,
  rounds: int,
  seed: int = 0,
  step_secs: float = _STEP_SECS,
  load: float = _LOAD,
) -> Result:
  """Kills a replica in each round.

  Args:
    directory: An empty directory.
    rounds: The number of replicas to kill.
    seed: The seed of the choice of replicas.
    step_secs: The duration of a request in the servers.
    load: The rate of requests, as a share of the capacity of all replicas.
  """
  rng = random.Random(seed)
  result = Result(rate=load * _REPLICAS * _SLOTS / step_secs)
  with processes.Cell(directory) as cell:
    cell.admin()
    cell.wait_for_leader()
    model = admin_pb2.Model(
      model_id=_MODEL,
      model_path=_PARAMS,
      # Engines that answer at once do not read the checkpoint.
      checkpoint_path=directory,
      requested_num_replicas=_REPLICAS,
    )
    cell.call('Publish', admin_pb2.PublishRequest(model=model))
    servers = [_start(cell, step_secs) for _ in range(_REPLICAS + 1)]
    addresses = _wait_for_replicas(cell)
    with load_lib.Load(cell.root, _MODEL, result):
      for left in reversed(range(rounds)):
        time.sleep(_PAUSE_SECS)
        victim = rng.choice([s for s in servers if s.address in addresses])
        victim.kill()
        killed = time.monotonic()
        servers.remove(victim)
        processes.wait(
          lambda: victim.address not in evictions.addresses(cell, _MODEL)
        )
        result.gone_secs.append(time.monotonic() - killed)
        addresses = _wait_for_replicas(cell)
        result.replaced_secs.append(time.monotonic() - killed)
        if left:  # The next round needs a spare server.
          servers.append(_start(cell, step_secs))
    result.count(cell.path / _COMPLETED)
    result.reasons = evictions.reasons(cell)
  return result


def _start(cell: processes.Cell, step_secs: float) -> processes.Process:
  flags = [f'--step_secs={step_secs}', f'--completed={cell.path}/{_COMPLETED}']
  return cell.start(_SERVER, flags)


def _wait_for_replicas(cell: processes.Cell) -> set[str]:
  def enough() -> set[str] | None:
    addresses = evictions.addresses(cell, _MODEL)
    return addresses if len(addresses) == _REPLICAS else None

  return processes.wait(enough)
