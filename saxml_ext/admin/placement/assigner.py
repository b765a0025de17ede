"""Assigns models to model servers, as a pure function.

Loaded models stay on their servers. Missing replicas go to idle servers that
can serve the model path. Surplus replicas are taken from the least useful
servers. If the memory of a server and the needs of models are known, a server
takes several models. Otherwise, it takes one. A model that failed to load moves
to a server where it failed less often. A model may get fewer replicas than
requested. It gets the rest when servers join.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import enum
import functools


class Rank(enum.IntEnum):
  """The priority of a replica that stays on its server; lower is better."""

  LOADED = 0
  LOADING = 1
  FAILED = 2


@dataclasses.dataclass(frozen=True)
class Model:
  """The properties of a published model that affect its assignment.

  Attributes:
    model_id: The id of the model.
    model_path: The model path that a server must be able to serve.
    replicas: The number of requested replicas.
    need: The bytes of memory that it needs on a server; None if unknown.
    need_by_cores: The bytes on servers with a number of cores, if they differ.
    constraints: The tags that a server must have.
    may_retry: True if a server where it failed may try again, or if it may move
      after a failure.
  """

  model_id: str
  model_path: str
  replicas: int
  need: int | None = None
  may_retry: bool = True
  need_by_cores: Mapping[int, int] = dataclasses.field(default_factory=dict)
  constraints: tuple[str, ...] = ()

  def need_on(self, server: 'Server') -> int | None:
    """Returns the bytes of memory on that server, or None if unknown."""
    return self.need_by_cores.get(server.cores, self.need)


@dataclasses.dataclass(frozen=True)
class Server:
  """The properties of a live model server that affect the assignment.

  Attributes:
    address: The address with which it joined.
    model_paths: The model paths that it can serve.
    holds: The rank of every model that it holds or will hold, by model id.
    failures: The number of failures of a model in a row, by model id.
    memory: The bytes for models; None if unknown.
    cores: The number of cores.
    tags: The tags that it announced.
    leaving: The number of models that it must unload before it can load
      another.
  """

  address: str
  model_paths: frozenset[str]
  holds: Mapping[str, Rank]
  failures: Mapping[str, int] = dataclasses.field(default_factory=dict)
  memory: int | None = None
  cores: int = 1
  tags: frozenset[str] = frozenset()
  leaving: int = 0


@dataclasses.dataclass(frozen=True)
class Step:
  """A load or an unload of one model on one server."""

  address: str
  model_id: str


@dataclasses.dataclass(frozen=True)
class Plan:
  """The steps to take. Unloads come before loads on the same server.

  Attributes:
    unload: The models to unload.
    load: The models to load.
    retry: The models to load again where they failed.
  """

  unload: tuple[Step, ...]
  load: tuple[Step, ...]
  retry: tuple[Step, ...] = ()


def assign(models: Sequence[Model], servers: Iterable[Server]) -> Plan:
  """Returns the steps to the requested state.

  Models are assigned in the given order (first published, first served) to
  servers in the order of their addresses. So equal input gives an equal plan.
  """
  by_address = {s.address: s for s in sorted(servers, key=lambda s: s.address)}
  by_id = {m.model_id: m for m in models}
  holders: dict[str, list[Server]] = {}
  unload: list[Step] = []
  for server in by_address.values():
    for model_id in server.holds:
      if model_id in by_id:
        holders.setdefault(model_id, []).append(server)
      else:
        unload.append(Step(server.address, model_id))

  kept: dict[str, list[Model]] = {a: [] for a in by_address}
  for model_id, have in holders.items():
    model = by_id[model_id]
    have.sort(key=functools.partial(_order, model_id))
    unload += [Step(s.address, model_id) for s in have[model.replicas :]]
    del have[model.replicas :]
    for server in have:
      kept[server.address].append(model)

  room = _Room(by_address, kept)
  load: list[Step] = []
  retry: list[Step] = []
  for model in models:
    have = holders.get(model.model_id, [])
    missing = model.replicas - len(have)
    for holder in tuple(have):
      count = holder.failures.get(model.model_id, 0)
      failed = holder.holds[model.model_id] is Rank.FAILED
      if not (failed and count and model.may_retry):
        continue
      better = room.take(model, have, fewer_than=count)
      if better:
        unload.append(Step(holder.address, model.model_id))
        load.append(Step(better, model.model_id))
        have.append(by_address[better])
      else:
        retry.append(Step(holder.address, model.model_id))
    for _ in range(missing):
      address = room.take(model, have)
      if not address:
        break
      load.append(Step(address, model.model_id))
      have.append(by_address[address])
  return Plan(tuple(unload), tuple(load), tuple(retry))


def _order(model_id: str, holder: Server) -> tuple[Rank, str]:
  """Returns the sort key of a server. The best one to keep comes first."""
  return holder.holds[model_id], holder.address


class _Room:
  """The free memory of servers."""

  def __init__(
    self, servers: Mapping[str, Server], kept: Mapping[str, Sequence[Model]]
  ):
    self._servers = servers
    # The values are the free bytes; None for an idle server of unknown memory.
    self._left: dict[str, int | None] = {}
    self._idle: set[str] = set()
    # The servers with free memory are grouped by path. A cell may have many
    # more models than servers, and a model that fits nowhere must cost no time.
    self._by_path: dict[str, list[str]] = {}
    for address, server in servers.items():
      models = kept[address]
      if not models:
        self._idle.add(address)
        self._left[address] = server.memory
      elif server.memory:
        needs = [m.need_on(server) for m in models]
        known = [need for need in needs if need is not None]
        left = server.memory - sum(known)
        if len(known) == len(needs) and left > 0:
          self._left[address] = left
      if address in self._left:
        for path in server.model_paths:
          self._by_path.setdefault(path, []).append(address)

  def take(
    self, model: Model, have: Sequence[Server], fewer_than: int | None = None
  ) -> str | None:
    """Assigns a model to the best server, and returns its address.

    Args:
      model: The model to assign.
      have: The servers that already hold it.
      fewer_than: The number of failures that a server must stay below.
    """
    able = self._by_path.get(model.model_path)
    if not able:
      return None
    if model.need is None and not model.need_by_cores and not self._idle:
      return None
    best = min(
      (key for a in able if (key := self._rank(model, a, have, fewer_than))),
      default=None,
    )
    if best is None:
      return None
    address = best[-1]
    left = self._left[address]
    need = model.need_on(self._servers[address])
    self._idle.discard(address)
    if left is None or need is None or left <= need:
      self._drop(address)
    else:
      self._left[address] = left - need
    return address

  def _rank(
    self,
    model: Model,
    address: str,
    have: Sequence[Server],
    fewer_than: int | None,
  ) -> tuple[int, bool, int, int, str] | None:
    """Returns the sort key of a server, or None if the model must not go there.

    Lower is better.
    """
    server, left = self._servers[address], self._left[address]
    # A model that is just being unloaded must not come back at once.
    if server in have or model.model_id in server.holds:
      return None
    if not server.tags.issuperset(model.constraints):
      return None
    busy, need = address not in self._idle, model.need_on(server)
    if need is None:
      if busy:
        return None
    elif left is not None and need > left:
      return None
    failures = server.failures.get(model.model_id, 0)
    if failures and not model.may_retry:
      return None
    if fewer_than is not None and failures >= fewer_than:
      return None
    return failures, busy, server.leaving, -(left or 0), address

  def _drop(self, address: str) -> None:
    del self._left[address]
    for path in self._servers[address].model_paths:
      self._by_path[path].remove(address)
