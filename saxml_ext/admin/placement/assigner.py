"""Which model server is to hold which model: a pure function.

What is already loaded stays where it is; what is missing goes to idle servers
that can serve its model path; what is too much is taken from the least useful
holder. Where the memory of a server and the needs of models are known, a
server takes several models; else it takes one. A model that failed to load
moves to a server where it failed less often. Getting fewer replicas than
requested is normal, the rest follows when servers join.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import enum
import functools


class Rank(enum.IntEnum):
  """How much a holder is worth keeping; lower is better."""

  LOADED = 0
  LOADING = 1
  FAILED = 2


@dataclasses.dataclass(frozen=True)
class Model:
  """What the rule needs to know of a published model.

  Attributes:
    model_id: its id.
    model_path: what it needs a server to offer.
    replicas: how many are wanted.
    need: bytes of memory on a server, None if that is not known.
    need_by_cores: the same on servers of so many cores, if it differs there.
    constraints: tags that a server must have.
    may_retry: whether it may be tried where it failed before, or be moved
      after it failed.
  """

  model_id: str
  model_path: str
  replicas: int
  need: int | None = None
  may_retry: bool = True
  need_by_cores: Mapping[int, int] = dataclasses.field(default_factory=dict)
  constraints: tuple[str, ...] = ()

  def need_on(self, server: 'Server') -> int | None:
    """Bytes of memory on that server, None if that is not known."""
    return self.need_by_cores.get(server.cores, self.need)


@dataclasses.dataclass(frozen=True)
class Server:
  """What the rule needs to know of a live model server.

  Attributes:
    address: its join address.
    model_paths: what it can serve.
    holds: rank by model id, of every model it holds or is about to hold.
    failures: how often a model failed here in a row, by model id.
    memory: bytes for models, None if that is not known.
    cores: how many it has.
    tags: what it says of itself.
    leaving: how many models it still has to unload before it can load another.
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
  """One load or unload."""

  address: str
  model_id: str


@dataclasses.dataclass(frozen=True)
class Plan:
  """What to change. Unloads come before loads on the same server.

  Attributes:
    unload: to take away.
    load: to add.
    retry: to load once more where they failed.
  """

  unload: tuple[Step, ...]
  load: tuple[Step, ...]
  retry: tuple[Step, ...] = ()


def assign(models: Sequence[Model], servers: Iterable[Server]) -> Plan:
  """Returns the steps that bring the servers to the wanted state.

  Models are served in the order given (first published, first served), servers
  in the order of their addresses, so equal input gives an equal plan.
  """
  by_address = {s.address: s for s in sorted(servers, key=lambda s: s.address)}
  wanted = {m.model_id: m for m in models}
  holders: dict[str, list[Server]] = {}
  unload: list[Step] = []
  for server in by_address.values():
    for model_id in server.holds:
      if model_id in wanted:
        holders.setdefault(model_id, []).append(server)
      else:
        unload.append(Step(server.address, model_id))

  kept: dict[str, list[Model]] = {a: [] for a in by_address}
  for model_id, have in holders.items():
    model = wanted[model_id]
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
  """The holder that is most worth keeping comes first."""
  return holder.holds[model_id], holder.address


class _Room:
  """What servers can still take."""

  def __init__(
    self, servers: Mapping[str, Server], kept: Mapping[str, Sequence[Model]]
  ):
    self._servers = servers
    # Bytes that are left; None for an idle server of unknown memory.
    self._left: dict[str, int | None] = {}
    self._idle: set[str] = set()
    # Servers with room, by path: a cell may have many more models than
    # servers, and a model without hope must cost nothing.
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
    """Gives a model room on the best server; returns its address.

    Args:
      model: to be placed.
      have: servers that hold it already.
      fewer_than: only where it failed less often than this.
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
    """The lower the better; None if it must not go there."""
    server, left = self._servers[address], self._left[address]
    # One that is just being taken away from here must not come back at once.
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
