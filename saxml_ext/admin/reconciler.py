"""Keeps model servers in line with what is published.

Whatever happens (a model is published, a server joins, dies, comes back or
finishes a load), `soon` is called. It asks the assigner what to load and
unload, and hands that to the servers.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
import time

from saxml_ext.admin.leadership import cell_state
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import members as members_lib
from saxml_ext.admin.placement import assigner
from saxml_ext.admin.placement import capacity
from saxml_ext.protobuf import admin_pb2

_RANKS = {
  held_lib.LOADED: assigner.Rank.LOADED,
  held_lib.LOADING: assigner.Rank.LOADING,
  held_lib.FAILED: assigner.Rank.FAILED,
}
# After so many seconds, living servers have joined a new leader. Until then it
# loads nothing that one of them may hold.
_CALM = 3.0
# Seconds between two looks whether this admin server leads (again).
_DOUBT_PAUSE = 0.2


class Reconciler:
  """Carries the assigner's plans out."""

  def __init__(
    self,
    store: cell_state.ModelStore,
    members: members_lib.Members,
    leads: Callable[[], bool],
    inherited: Collection[str],
    by_chip: bool,
  ):
    """Does nothing before `soon`.

    Args:
      store: what is published.
      members: the model servers.
      leads: whether model servers may be told anything at this moment.
      inherited: ids of models that a former leader may have had loaded.
      by_chip: how models are given to servers, see `capacity`.
    """
    self._store = store
    self._members = members
    self._leads = leads
    self._inherited = frozenset(inherited)
    self._by_chip = by_chip
    self._calm_until = time.monotonic() + _CALM
    self._due: asyncio.Handle | None = None
    self._later: asyncio.TimerHandle | None = None
    self._closed = False

  def soon(self) -> None:
    """Acts once for all that happens in one turn of the event loop."""
    if self._due is None and not self._closed:
      self._due = asyncio.get_running_loop().call_soon(self._run)

  def close(self) -> None:
    """Acts no more."""
    self._closed = True
    for handle in (self._due, self._later):
      if handle:
        handle.cancel()

  def _after(self, seconds: float) -> None:
    if self._later:
      self._later.cancel()
    loop = asyncio.get_running_loop()
    self._later = loop.call_later(seconds, self.soon)

  def _run(self) -> None:
    try:
      if self._leads():
        self._act(assigner.assign(*self._picture()))
      else:
        # Either it soon leads again, or this object is closed.
        self._after(_DOUBT_PAUSE)
    finally:
      # Only now: the servers' own reports of these steps bring nothing new.
      self._due = None

  def _act(self, plan: assigner.Plan) -> None:
    for step in plan.unload:
      self._members[step.address].unload(step.model_id)
    for step in self._timely(plan.load):
      self._members[step.address].load(self._model(step))
    for step in plan.retry:
      self._members[step.address].update(self._model(step))

  def _model(self, step: assigner.Step) -> admin_pb2.Model:
    return self._store[step.model_id].model

  def _timely(self, steps: Sequence[assigner.Step]) -> Sequence[assigner.Step]:
    """Leaves out what servers that have not joined yet may hold already."""
    wait = self._calm_until - time.monotonic()
    if wait <= 0:
      return steps
    timely = [s for s in steps if s.model_id not in self._inherited]
    if len(timely) < len(steps):
      self._after(wait)
    return timely

  def _picture(self) -> tuple[Sequence[assigner.Model], list[assigner.Server]]:
    """What the assigner needs to know; acts again when a back-off is over."""
    failed: dict[str, dict[str, int]] = {}
    models = []
    pauses = []
    for entry in self._store.entries():
      pause = entry.failures.wait()
      if pause:
        pauses.append(pause)
      for address, failure in entry.failures.items():
        failed.setdefault(address, {})[entry.model.model_id] = failure.count
      models.append(entry.wanted(not pause, self._by_chip))
    if pauses:
      self._after(min(pauses))
    servers = [
      capacity.server(
        m.join.model_server,
        assigner.Server(
          m.address,
          m.paths,
          {k: _RANKS[h.status] for k, h in m.held.items()},
          failed.get(m.address, {}),
          leaving=len(m.unloading),
        ),
        self._by_chip,
      )
      for m in self._members.all()
    ]
    return capacity.in_order(models, self._by_chip), servers
