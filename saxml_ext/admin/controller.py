"""The cell: published models on one side, model servers on the other.

The controller owns both and passes on what happens on one side to the other:
a change of what is published goes to the servers that hold the model, and what
servers report goes to those who follow the model. What is to be loaded where
is the reconciler's to decide. Everything runs in one event loop, so methods
without `await` are atomic.
"""

from collections.abc import Callable
import secrets

from saxml_ext.admin import readiness
from saxml_ext.admin import reconciler as reconciler_lib
from saxml_ext.admin.leadership import cell_state as state_lib
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import members as members_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.admin.modelet import origins
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import modelet_pb2

_TAKEN_OVER = frozenset({held_lib.LOADED, held_lib.LOADING, held_lib.FAILED})


def _not_found(model_id: str) -> errors.NotFound:
  return errors.NotFound(
    f'model {ids.parse_model_id(model_id).braced} not found'
  )


class Controller:
  """What a cell publishes, and what its model servers make of it.

  Attributes:
    server_id: names the address logs; sequence numbers of another id mean
      nothing here.
    leads: whether this admin server leads beyond doubt at this moment.
    members: the model servers.
    origin: what calls to them about a model carry, see `origins`.
  """

  def __init__(
    self,
    state: admin_pb2.State,
    save: Callable[[admin_pb2.State], None],
    server_id: str,
    leads: Callable[[], bool],
    by_chip: bool = False,
  ):
    """Must be made in the event loop that will use it.

    Args:
      state: what was published when the last admin server ended.
      save: makes a state durable; called in a thread.
      server_id: see the attribute.
      leads: see the attribute; while it is False, model servers are left alone.
      by_chip: how models are given to servers, see `capacity`.
    """
    self.server_id = server_id
    self.leads = leads
    self.members = members_lib.Members(self)
    self._retired = False
    self._origins = origins.Origins()
    self.origin = self._origins.metadata
    self._store = state_lib.ModelStore(state, save, self._on_change)
    self._reconciler = reconciler_lib.Reconciler(
      self._store,
      self.members,
      leads,
      [m.model_id for m in state.models],
      by_chip,
    )

  def retire(self) -> None:
    """Ends all calls that wait: another admin server leads from now on."""
    self._retired = True
    self._reconciler.close()
    for entry in self.entries():
      entry.changed.notify_all()

  def check_leads(self) -> None:
    """Raises Unavailable once it is retired."""
    if self._retired:
      raise errors.Unavailable(
        'this admin server is no longer the leader of its cell; ask the one '
        'that location.proto names'
      )

  # What is published.

  async def publish(self, model: admin_pb2.Model) -> None:
    """Adds a model; returns once that is durable, before it is loaded.

    Raises:
      AlreadyExists: it is published.
      Unavailable: a server still answers requests for the former one of that
        id; see `Modelet.is_draining`.
      FailedPrecondition: see `ModelStore.apply`.
    """
    new = admin_pb2.Model()
    new.CopyFrom(model)
    self._origins.note(model.model_id)
    new.uuid = secrets.token_bytes(16)

    def edit(table) -> state_lib.Change:
      name = ids.parse_model_id(new.model_id).braced
      if new.model_id in table:
        raise errors.AlreadyExists(f'model {name} already exists')
      if any(m.is_draining(new.model_id) for m in self.members.all()):
        raise errors.Unavailable(
          f'model {name} is being unpublished, please retry later'
        )
      return state_lib.Change(None, new)

    await self._store.apply(edit)

  async def update(self, model: admin_pb2.Model) -> None:
    """Replaces a model; returns once that is durable.

    Raises:
      NotFound: it is not published.
      InvalidArgument: its path would change.
      FailedPrecondition: see `ModelStore.apply`.
    """
    new = admin_pb2.Model()
    new.CopyFrom(model)
    self._origins.note(model.model_id)

    def edit(table) -> state_lib.Change:
      old = table.get(new.model_id)
      if old is None:
        raise _not_found(new.model_id)
      if old.model_path != new.model_path:
        raise errors.InvalidArgument(
          "invalid model update: model path can't be changed"
        )
      new.uuid = old.uuid
      return state_lib.Change(old, new)

    await self._store.apply(edit)

  async def unpublish(self, model_id: str) -> None:
    """Removes a model; returns once that is durable, before it is unloaded.

    Raises:
      NotFound: it is not published.
      FailedPrecondition: see `ModelStore.apply`.
    """

    self._origins.note(model_id)

    def edit(table) -> state_lib.Change:
      if model_id not in table:
        raise _not_found(model_id)
      return state_lib.Change(table[model_id], None)

    await self._store.apply(edit)

  def get(self, model_id: str) -> state_lib.Published:
    """The published model of that id; raises NotFound."""
    entry = self._store.get(model_id)
    if entry is None:
      raise _not_found(model_id)
    return entry

  def entries(self) -> list[state_lib.Published]:
    """All published models, oldest first."""
    return self._store.entries()

  def holders(self, model_id: str) -> list[modelets.Modelet]:
    """The servers a model is assigned to: loaded first, then by address."""
    return self.members.holders().get(model_id, [])

  async def wait_for_ready(self, model_id: str, replicas: int) -> None:
    """See `readiness.wait`; raises NotFound if there is no such model."""
    await readiness.wait(
      self.get(model_id), self.members, replicas, self.check_leads
    )

  async def close(self) -> None:
    """Finishes changes under way and lets go of the servers."""
    self.retire()
    await self._store.close()
    await self.members.close()

  # What servers tell (modelets.Listener).

  def changed(self, modelet: modelets.Modelet, model_id: str) -> None:
    """Passes a change of a model on a server on to those who follow it."""
    entry = self._store.get(model_id)
    if entry is not None:
      held = modelet.held.get(model_id)
      if held is not None:
        entry.failures.follow(modelet.address, held)
      _announce(entry, modelet, held)
    self._reconciler.soon()

  def found(
    self,
    modelet: modelets.Modelet,
    status: modelet_pb2.GetStatusResponse,
  ) -> None:
    """A server is there (again); takes over the models it holds."""
    for info in status.models:
      model_id = info.model_key
      entry = self._store.get(model_id)
      known = model_id in modelet.former
      if entry is None:
        # Perhaps it serves it on its own account; then it is left alone. Not
        # so if it missed our unload.
        if known:
          modelet.unload(model_id)
      elif known and not held_lib.same_load(
        modelet.former[model_id], entry.model
      ):
        modelet.unload(model_id)  # Published anew or updated meanwhile.
      elif info.model_status in _TAKEN_OVER:
        modelet.adopt(entry.model, info, certain=known)
    modelet.former = {}
    # Who waits for a model that no server has may wait for a server of this
    # kind, or learn that servers have joined and none can serve it.
    holders = self.members.holders()
    for entry in self.entries():
      if entry.model.model_id not in holders:
        entry.changed.notify_all()
    self._reconciler.soon()

  def forgotten(self, modelet: modelets.Modelet) -> None:
    """A lost server did not come back."""
    self.members.forget(modelet)

  # What is published changes (state.ModelStore).

  def _on_change(self, change: state_lib.Change) -> None:
    old, new = change.before, change.after
    if old and new:
      self._pass_on(old, new)
    elif old:
      for modelet in self.holders(old.model_id):
        modelet.unload(old.model_id)
    self._reconciler.soon()

  def _pass_on(self, old: admin_pb2.Model, new: admin_pb2.Model) -> None:
    # An update that only changes the number of replicas must not disturb those
    # that serve. Any other one, also one that changes nothing, is passed on:
    # the files of a checkpoint may have been replaced.
    only_replicas = (
      old.requested_num_replicas != new.requested_num_replicas
      and old.checkpoint_path == new.checkpoint_path
      and old.acls == new.acls
      and old.overrides == new.overrides
    )
    if not only_replicas:
      self._store[new.model_id].failures.clear()
    for modelet in self.holders(new.model_id):
      if only_replicas:
        modelet.held[new.model_id].model = new
      else:
        modelet.update(new)


def _announce(
  entry: state_lib.Published,
  modelet: modelets.Modelet,
  held: held_lib.Held | None,
) -> None:
  """Brings the address log of a model up to date and wakes its followers.

  A server is listed as soon as its load is queued, as clients of this protocol
  expect, and as long as it is alive and did not fail. But not while a former
  model of the same name is still there: clients would be answered by that one.
  """
  address = modelet.data_address
  wanted = (
    held is not None
    and held.status != held_lib.FAILED
    and entry.model.model_id not in modelet.unloading
  )
  listed = address in entry.addresses.addresses
  if wanted and not listed:
    entry.addresses.add(address)
  elif listed and not wanted:
    entry.addresses.remove(address)
  entry.changed.notify_all()
