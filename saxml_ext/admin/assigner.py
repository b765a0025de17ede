"""Which model server is to hold which model: a pure function.

The default rule gives a server at most one published model. What is already
loaded stays where it is; what is missing goes to idle servers that can serve
its model path; what is too much is taken from the least useful holder. Getting
fewer replicas than requested is normal, the rest follows when servers join.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import enum


class Rank(enum.IntEnum):
  """How much a holder is worth keeping; lower is better."""

  LOADED = 0
  LOADING = 1
  FAILED = 2


@dataclasses.dataclass(frozen=True)
class Model:
  """What the rule needs to know of a published model."""

  model_id: str
  model_path: str
  replicas: int


@dataclasses.dataclass(frozen=True)
class Server:
  """What the rule needs to know of a live model server.

  Attributes:
    address: its join address.
    model_paths: what it can serve.
    holds: rank by model id, of every model it holds or is about to hold.
  """

  address: str
  model_paths: frozenset[str]
  holds: Mapping[str, Rank]


@dataclasses.dataclass(frozen=True)
class Step:
  """One load or unload."""

  address: str
  model_id: str


@dataclasses.dataclass(frozen=True)
class Plan:
  """What to change. Unloads come before loads on the same server."""

  unload: tuple[Step, ...]
  load: tuple[Step, ...]


def assign(models: Sequence[Model], servers: Iterable[Server]) -> Plan:
  """Returns the loads and unloads that bring the servers to the wanted state.

  Models are served in the order given (first published, first served), servers
  in the order of their addresses, so equal input gives an equal plan.
  """
  servers = sorted(servers, key=lambda s: s.address)
  holders: dict[str, list[Server]] = {m.model_id: [] for m in models}
  unload: list[Step] = []
  idle: dict[str, Server] = {s.address: s for s in servers}
  for server in servers:
    for model_id in server.holds:
      if model_id in holders:
        holders[model_id].append(server)
      else:
        unload.append(Step(server.address, model_id))

  for model in models:
    have = holders[model.model_id]
    have.sort(key=lambda s: (s.holds[model.model_id], s.address))
    surplus = have[model.replicas :]
    del have[model.replicas :]
    unload += [Step(s.address, model.model_id) for s in surplus]
    for server in have:
      idle.pop(server.address, None)

  # Idle servers by what they can serve: a cell may have many more models than
  # servers, and a model without hope must cost nothing.
  by_path: dict[str, list[str]] = {}
  for server in idle.values():
    for path in server.model_paths:
      by_path.setdefault(path, []).append(server.address)

  load: list[Step] = []
  for model in models:
    missing = model.replicas - len(holders[model.model_id])
    if missing <= 0 or not idle:
      continue
    able = [a for a in by_path.get(model.model_path, ()) if a in idle]
    for address in able[:missing]:
      del idle[address]
      load.append(Step(address, model.model_id))
  return Plan(tuple(unload), tuple(load))
