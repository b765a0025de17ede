"""The cell: published models on one side, model servers on the other.

The controller owns both and passes on what happens on one side to the other:
a change of what is published goes to the servers that hold the model, and what
happens to servers goes to those who follow the model. All that happens to
servers comes through one queue of events, which one coroutine empties. When it
is empty, the reconciler decides what is to be loaded where. Everything runs in
one event loop, so methods without `await` are atomic.
"""

import asyncio
from collections.abc import Callable
import contextlib
import secrets

from absl import logging

from saxml_ext.admin import readiness
from saxml_ext.admin import reconciler as reconciler_lib
from saxml_ext.admin.leadership import cell_state as state_lib
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import members as members_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.telemetry import tracing
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import modelet_pb2

_TAKEN_OVER = frozenset({held_lib.LOADED, held_lib.LOADING, held_lib.FAILED})


# Models whose origin is remembered; of more, those asked for longest ago are not.
_MOST_ORIGINS = 1000


class Origins:
  """The last request about each model.

  Servers are told to load and unload some time after somebody asked to publish.
  What they are told carries the id and the trace of that request, so that a
  publish can be followed to the servers.
  """

  def __init__(self):
    self._by_model: dict[str, tracing.Metadata] = {}

  def note(self, model_id: str) -> None:
    """Notes that the request that is being handled is about a model."""
    self._by_model.pop(model_id, None)
    named = tracing.current_id()
    if named:
      self._by_model[model_id] = (
        (tracing.REQUEST_ID, named),
        *tracing.carrier(),
      )
    while len(self._by_model) > _MOST_ORIGINS:
      del self._by_model[next(iter(self._by_model))]

  def metadata(self, model_id: str) -> tracing.Metadata:
    """Returns the metadata for calls about a model; () if nobody asked yet."""
    return self._by_model.get(model_id, ())


def _not_found(model_id: str) -> errors.NotFound:
  return errors.NotFound(
    f'model {ids.parse_model_id(model_id).braced} not found'
  )


class Controller:
  """What a cell publishes, and what its model servers make of it.

  Attributes:
    server_id: names the address logs; sequence numbers of another id mean
      nothing here.
    members: the model servers.
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
      leads: Returns whether this admin server leads beyond doubt at this moment.
        While it does not, model servers are left alone.
      by_chip: how models are given to servers, see `capacity`.
    """
    self.server_id = server_id
    self._retired = False
    self._origins = Origins()
    # All that happens to model servers.
    self._events: asyncio.Queue[modelets.Event] = asyncio.Queue()
    self.members = members_lib.Members(
      lambda join: modelets.Modelet(
        join, leads, self._origins.metadata, self._events
      ),
      self.check_leads,
      self._events,
    )
    self._store = state_lib.ModelStore(state, save, self._on_change)
    self._reconciler = reconciler_lib.Reconciler(
      self._store,
      self.members,
      leads,
      [m.model_id for m in state.models],
      by_chip,
    )
    self._handling = asyncio.create_task(self._handle_events())

  def retire(self) -> None:
    """Ends all calls that wait: another admin server leads from now on."""
    self._retired = True
    self._handling.cancel()
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

  # What happens to servers.

  async def _handle_events(self) -> None:
    """Handles events one by one, and acts once after all that have come."""
    pause: float | None = None
    while True:
      event: modelets.Event = None
      with contextlib.suppress(TimeoutError):  # It is time to act again.
        async with asyncio.timeout(pause):
          event = await self._events.get()
      try:
        self._handle(event)
        self._handle_pending()
        pause = self._reconciler.act()
        # These are about the steps themselves: they bring nothing new.
        self._handle_pending()
      except Exception:  # pylint: disable=broad-exception-caught
        logging.exception('an event of the cell was not handled')
        pause = None

  def _handle_pending(self) -> None:
    while not self._events.empty():
      self._handle(self._events.get_nowait())

  def _handle(self, event: modelets.Event) -> None:
    match event:
      case modelets.Changed(modelet, model_id):
        self._changed(modelet, model_id)
      case modelets.Found(modelet, status):
        self._found(modelet, status)
      case modelets.Forgotten(modelet):
        self.members.forget(modelet)

  def _changed(self, modelet: modelets.Modelet, model_id: str) -> None:
    """Passes a change of a model on a server on to those who follow it."""
    entry = self._store.get(model_id)
    if entry is not None:
      held = modelet.held.get(model_id)
      if held is not None:
        entry.failures.follow(modelet.address, held)
      _announce(entry, modelet, held)

  def _found(
    self, modelet: modelets.Modelet, status: modelet_pb2.GetStatusResponse
  ) -> None:
    """Takes over the models that a server holds which is there (again)."""
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

  # What is published changes (state.ModelStore).

  def _on_change(self, change: state_lib.Change) -> None:
    old, new = change.before, change.after
    if old and new:
      self._pass_on(old, new)
    elif old:
      for modelet in self.holders(old.model_id):
        modelet.unload(old.model_id)
    self._events.put_nowait(None)

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
