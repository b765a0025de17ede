"""Keeps model servers in line with the published models.

The controller calls `act` after every event: a model is published, or a server
joins, dies, comes back or finishes a load. `act` gets a plan of loads and
unloads from the assigner, and sends the commands to the servers.
"""

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
# After this many seconds, live servers have joined a new leader. Until then, it
# loads no model that one of them may hold.
_CALM = 3.0
# The number of seconds between checks that this admin server leads again.
_DOUBT_PAUSE = 0.2


class Reconciler:
  """Executes the assigner's plans."""

  def __init__(
    self,
    store: cell_state.ModelStore,
    members: members_lib.Members,
    leads: Callable[[], bool],
    inherited: Collection[str],
    by_chip: bool,
  ):
    """Does nothing before `act`.

    Args:
      store: The published models.
      members: The model servers.
      leads: A function that returns True if model servers may get commands now.
      inherited: The ids of the models that a former leader may have had loaded.
      by_chip: True to assign models by the kind of chip; see `capacity`.
    """
    self._store = store
    self._members = members
    self._leads = leads
    self._inherited = frozenset(inherited)
    self._by_chip = by_chip
    self._calm_until = time.monotonic() + _CALM

  def act(self) -> float | None:
    """Sends the commands that are due to the servers.

    Returns:
      The number of seconds after which to act again without an event, or None
      if that is not necessary.
    """
    if not self._leads():
      return _DOUBT_PAUSE  # By then it leads again or is closed.
    models, servers, pauses = self._picture()
    plan = assigner.assign(models, servers)
    for step in plan.unload:
      self._members[step.address].unload(step.model_id)
    timely = self._timely(plan.load)
    for step in timely:
      self._members[step.address].load(self._model(step))
    for step in plan.retry:
      self._members[step.address].update(self._model(step))
    if len(timely) < len(plan.load):
      pauses.append(self._calm_until - time.monotonic())
    return max(0.0, min(pauses)) if pauses else None

  def _model(self, step: assigner.Step) -> admin_pb2.Model:
    return self._store[step.model_id].model

  def _timely(self, steps: Sequence[assigner.Step]) -> Sequence[assigner.Step]:
    """Removes steps for models that a server may hold before it joins."""
    if time.monotonic() >= self._calm_until:
      return steps
    return [s for s in steps if s.model_id not in self._inherited]

  def _picture(
    self,
  ) -> tuple[Sequence[assigner.Model], list[assigner.Server], list[float]]:
    """Returns models and servers for the assigner, and the pauses left."""
    failed: dict[str, dict[str, int]] = {}
    models = []
    pauses = []
    for entry in self._store.entries():
      pause = entry.failures.wait()
      if pause:
        pauses.append(pause)
      for address, failure in entry.failures.items():
        failed.setdefault(address, {})[entry.model.model_id] = failure.count
      models.append(entry.placement_request(not pause, self._by_chip))
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
    return capacity.in_order(models, self._by_chip), servers, pauses
