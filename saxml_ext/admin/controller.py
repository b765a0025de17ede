"""Connects the published models of a cell with its model servers.

The controller owns both, and passes changes from one side to the other. A
change of a published model goes to the servers that hold the model. A change of
a server goes to the calls that follow the model. All changes of servers are
events in one queue, which one coroutine empties. When the queue is empty, the
reconciler assigns models to servers. Everything runs in one event loop, so
methods without `await` are atomic.
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


# The limit of models with a stored origin. The oldest ones are dropped.
_MOST_ORIGINS = 1000


class Origins:
  """The last request about each model.

  Servers get commands to load and unload a model some time after the request
  that caused them. The commands have the id and the trace of that request. So a
  publish can be traced to the servers.
  """

  def __init__(self):
    self._by_model: dict[str, tracing.Metadata] = {}

  def note(self, model_id: str) -> None:
    """Stores that the current request is about a model."""
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
    """Returns the metadata for calls about a model, or () without a request."""
    return self._by_model.get(model_id, ())


def _not_found(model_id: str) -> errors.NotFound:
  return errors.NotFound(
    f'model {ids.parse_model_id(model_id).braced} not found'
  )


class Controller:
  """The published models of a cell and its model servers.

  Attributes:
    server_id: The name of the address logs. Sequence numbers of another id have
      no meaning here.
    members: The model servers.
  """

  def __init__(
    self,
    state: admin_pb2.State,
    save: Callable[[admin_pb2.State], None],
    server_id: str,
    leads: Callable[[], bool],
    by_chip: bool = False,
  ):
    """Starts to handle events, in the running event loop.

    Args:
      state: The models that were published when the last admin server ended.
      save: The function that makes a state durable. It is called in a thread.
      server_id: The value of the attribute.
      leads: A function that returns True if this admin server certainly leads
        now. While it does not, model servers get no commands.
      by_chip: True to assign models by the kind of chip; see `capacity`.
    """
    self.server_id = server_id
    self._retired = False
    self._origins = Origins()
    # The queue gets all changes of model servers.
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
    """Ends all waiting calls, because another admin server leads now."""
    self._retired = True
    self._handling.cancel()
    for entry in self.entries():
      entry.changed.notify_all()

  def check_leads(self) -> None:
    """Raises Unavailable if the controller is retired."""
    if self._retired:
      raise errors.Unavailable(
        'this admin server no longer leads its cell. Call the server that'
        ' location.proto names'
      )

  # These methods change and return the published models.

  async def publish(self, model: admin_pb2.Model) -> None:
    """Adds a model. Returns when it is durable, before it is loaded.

    Raises:
      AlreadyExists: A model of that id is published.
      Unavailable: A server still answers requests for a former model of that
        id; see `Modelet.is_draining`.
      FailedPrecondition: The state cannot be written; see `ModelStore.apply`.
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
    """Replaces a model. Returns when the change is durable.

    Raises:
      NotFound: The model is not published.
      InvalidArgument: The change includes the model's path.
      FailedPrecondition: The state cannot be written; see `ModelStore.apply`.
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
    """Removes a model. Returns when that is durable, before it is unloaded.

    Raises:
      NotFound: The model is not published.
      FailedPrecondition: The state cannot be written; see `ModelStore.apply`.
    """
    self._origins.note(model_id)

    def edit(table) -> state_lib.Change:
      if model_id not in table:
        raise _not_found(model_id)
      return state_lib.Change(table[model_id], None)

    await self._store.apply(edit)

  def get(self, model_id: str) -> state_lib.Published:
    """Returns the published model of that id; raises NotFound."""
    entry = self._store.get(model_id)
    if entry is None:
      raise _not_found(model_id)
    return entry

  def entries(self) -> list[state_lib.Published]:
    """Returns all published models, oldest first."""
    return self._store.entries()

  def holders(self, model_id: str) -> list[modelets.Modelet]:
    """Returns the servers of a model: loaded ones first, then by address."""
    return self.members.holders().get(model_id, [])

  async def wait_for_ready(self, model_id: str, replicas: int) -> None:
    """Waits until `replicas` servers have loaded a model.

    See `readiness.wait`.

    Raises:
      NotFound: The model is not published.
    """
    await readiness.wait(
      self.get(model_id), self.members, replicas, self.check_leads
    )

  async def close(self) -> None:
    """Finishes pending changes and disconnects from the servers."""
    self.retire()
    await self._store.close()
    await self.members.close()

  # These methods handle changes of servers.

  async def _handle_events(self) -> None:
    """Handles events one by one, and acts once after all pending ones."""
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
        # The steps themselves cause these events, so no further step is needed.
        self._handle_pending()
      except Exception:  # pylint: disable=broad-exception-caught
        logging.exception('failed to handle an event of the cell')
        pause = None

  def _handle_pending(self) -> None:
    while not self._events.empty():
      self._handle(self._events.get_nowait())

  def _handle(self, event: modelets.Event) -> None:
    match event:
      case modelets.Changed(modelet, model_id):
        self._changed(modelet, model_id)
      case modelets.Reachable(modelet, status):
        self._adopt(modelet, status)
      case modelets.Forgotten(modelet):
        self.members.forget(modelet)

  def _changed(self, modelet: modelets.Modelet, model_id: str) -> None:
    """Passes a change of a model on a server to the model's followers."""
    entry = self._store.get(model_id)
    if entry is not None:
      held = modelet.held.get(model_id)
      if held is not None:
        entry.failures.follow(modelet.address, held)
      _announce(entry, modelet, held)

  def _adopt(
    self, modelet: modelets.Modelet, status: modelet_pb2.GetStatusResponse
  ) -> None:
    """Adopts the models of a server that is reachable, maybe again."""
    for info in status.models:
      model_id = info.model_key
      entry = self._store.get(model_id)
      known = model_id in modelet.former
      if entry is None:
        # If the model is unknown, the server may serve it on its own, so it is
        # left alone. If it is known, the server missed the unload.
        if known:
          modelet.unload(model_id)
      elif known and not held_lib.same_load(
        modelet.former[model_id], entry.model
      ):
        modelet.unload(model_id)  # The model has changed meanwhile.
      elif info.model_status in _TAKEN_OVER:
        modelet.adopt(entry.model, info, certain=known)
    modelet.former = {}
    # Some calls wait for a model that no server holds. They may now wait for
    # this server, or fail because no joined server can serve the model.
    holders = self.members.holders()
    for entry in self.entries():
      if entry.model.model_id not in holders:
        entry.changed.notify_all()

  # These methods handle changes of published models (state.ModelStore).

  def _on_change(self, change: state_lib.Change) -> None:
    old, new = change.before, change.after
    if old and new:
      self._pass_on(old, new)
    elif old:
      for modelet in self.holders(old.model_id):
        modelet.unload(old.model_id)
    self._events.put_nowait(None)

  def _pass_on(self, old: admin_pb2.Model, new: admin_pb2.Model) -> None:
    # An update that only changes the number of replicas must not disturb the
    # servers that have the model. Any other update is passed on, even one
    # without a change, because the files of a checkpoint may have been
    # replaced.
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
  """Updates the address log of a model and wakes its followers.

  A server is listed as soon as its load is queued, as clients of this protocol
  expect. It stays listed while it is alive and has not failed. It is not listed
  while it still holds a former model of the same name, because that model would
  answer the clients.
  """
  address = modelet.data_address
  usable = (
    held is not None
    and held.status != held_lib.FAILED
    and entry.model.model_id not in modelet.unloading
  )
  listed = address in entry.addresses.addresses
  if usable and not listed:
    entry.addresses.add(address)
  elif listed and not usable:
    entry.addresses.remove(address)
  entry.changed.notify_all()
