"""The cell: published models on one side, model servers on the other.

The controller owns both and keeps them in line. Whatever happens (a model is
published, a server joins, dies, comes back or finishes a load) ends in
`_reconcile`, which asks the assigner what to load and unload, and hands that
to the servers' queues. Everything runs in one event loop, so methods without
`await` are atomic.
"""

import asyncio
from collections.abc import Callable, Sequence
import re
import secrets
import time
import weakref

from absl import logging
import grpc

from saxml_ext.admin import assigner
from saxml_ext.admin import capacity
from saxml_ext.admin import held as held_lib
from saxml_ext.admin import modelets
from saxml_ext.admin import state as state_lib
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import modelet_pb2

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
# What other model servers announce, and no target of another kind (gRPC would
# take "unix:/..." and the like as well).
_ADDRESS = re.compile(r'[^\s/]{1,255}:[0-9]{1,5}', re.ASCII)


def _not_found(model_id: str) -> errors.NotFound:
  return errors.NotFound(
      f'model {ids.parse_model_id(model_id).braced} not found'
  )


class Controller:
  """Keeps model servers in line with what is published."""

  def __init__(
      self,
      state: admin_pb2.State,
      save: Callable[[admin_pb2.State], None],
      settle: Callable[[], None],
      server_id: str,
      leads: Callable[[], bool],
      by_chip: bool = False,
  ):
    """Must be made in the event loop that will use it.

    Args:
      state: what was published when the last admin server ended.
      save: makes a state durable; called in a thread.
      settle: called in that thread some time after a save.
      server_id: names the address logs; sequence numbers of another id mean
        nothing here.
      leads: whether this admin server leads beyond doubt at this moment; if
        not, model servers are left alone.
      by_chip: how models are given to servers, see `capacity`.
    """
    self._by_chip = by_chip
    self.server_id = server_id
    self.leads = leads
    self._inherited = frozenset(m.model_id for m in state.models)
    self._calm_until = time.monotonic() + _CALM
    self._retired = False
    self._retry: asyncio.TimerHandle | None = None
    self._store = state_lib.ModelStore(state, save, settle, self._on_change)
    self._modelets: dict[str, modelets.Modelet] = {}
    self._joining: weakref.WeakValueDictionary[str, asyncio.Lock] = (
        weakref.WeakValueDictionary()
    )
    self._due: asyncio.Handle | None = None
    self._closing: set[asyncio.Task[None]] = set()

  def retire(self) -> None:
    """Ends all calls that wait: another admin server leads from now on."""
    self._retired = True
    for entry in self.entries():
      entry.changed.notify_all()

  def check_leads(self) -> None:
    """Raises Unavailable once it is retired."""
    if self._retired:
      raise errors.Unavailable(
          'this admin server leads no more; ask the one that location.proto '
          'names'
      )

  # What is published.

  async def publish(self, model: admin_pb2.Model) -> None:
    """Adds a model; returns once that is durable, before it is loaded.

    Raises:
      AlreadyExists: it is published.
      Unavailable: a server still has to unload the former one of that id.
      FailedPrecondition: see `ModelStore.apply`.
    """
    new = admin_pb2.Model()
    new.CopyFrom(model)
    new.uuid = secrets.token_bytes(16)

    def edit(table) -> state_lib.Change:
      name = ids.parse_model_id(new.model_id).braced
      if new.model_id in table:
        raise errors.AlreadyExists(f'model {name} already exists')
      if any(m.is_unloading(new.model_id) for m in self._modelets.values()):
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

  # Model servers.

  def servers(self, lost_too: bool = False) -> list[modelets.Modelet]:
    """The living model servers (on demand also the lost ones), by address."""
    return [
        m for _, m in sorted(self._modelets.items()) if lost_too or not m.lost
    ]

  def holders(self, model_id: str) -> list[modelets.Modelet]:
    """The servers a model is assigned to: loaded first, then by address."""
    return self.all_holders().get(model_id, [])

  def all_holders(self) -> dict[str, list[modelets.Modelet]]:
    """`holders` of every assigned model."""
    result: dict[str, list[modelets.Modelet]] = {}
    for modelet in self.servers():
      for model_id in modelet.held:
        result.setdefault(model_id, []).append(modelet)
    for model_id, found in result.items():
      found.sort(key=lambda m, k=model_id: _RANKS[m.held[k].status])
    return result

  async def join(self, request: admin_pb2.JoinRequest) -> None:
    """Takes a model server in, or notes that it is still there.

    Raises:
      InvalidArgument: the address is not "host:port".
      DeadlineExceeded: the server does not answer.
    """
    address = request.address
    for text in (address, request.data_address or address):
      if not _ADDRESS.fullmatch(text):
        raise errors.InvalidArgument(
            f'address {ids.quote(text[:300])} of a model server must have the '
            'form host:port'
        )
    # A server may get impatient and join once more while it is looked at.
    lock = self._joining.setdefault(address, asyncio.Lock())
    async with lock:
      known = self._modelets.get(address)
      if known and not known.lost and known.join == request:
        # If it was restarted, the next poll will tell what it has forgotten.
        return
      modelet = modelets.Modelet(request, self)
      try:
        status = await modelet.connect()
      except BaseException:
        await modelet.close()
        raise
      if known:
        modelet.former = known.former
        self._remove(known)
      self._modelets[address] = modelet
      modelet.start()
      logging.info(
          '%s: joins; it can serve %d model paths',
          address,
          len(request.model_server.servable_model_paths),
      )
      self.found(modelet, status)

  async def wait_for_ready(self, model_id: str, replicas: int) -> None:
    """Returns when so many servers have loaded a model.

    Raises:
      NotFound: it is not published.
      Cancelled: it was unpublished meanwhile.
      FailedPrecondition: its loading failed, and nothing is under way that
        would make it ready.
    """
    entry = self.get(model_id)
    while replicas > 0:
      if entry.removed:
        raise grpc_aio.Verbatim(grpc.StatusCode.CANCELLED, 'Canceled')
      held = {m.address: m.held[model_id] for m in self.holders(model_id)}
      status = [h.status for h in held.values()]
      if status.count(held_lib.LOADED) >= replicas:
        return
      if (
          held_lib.FAILED in status
          and held_lib.LOADING not in status
          and not self._untried(entry)
      ):
        raise errors.FailedPrecondition(
            f'model {model_id} is loaded on {status.count(held_lib.LOADED)} of '
            f'{replicas} servers, and failed on: '
            + '; '.join(
                f'{address} ({failure.reason or "no reason given"})'
                for address, failure in entry.failures.items()
            )
            + '; update its checkpoint, or unpublish it and publish it anew'
        )
      await entry.changed.wait()
      self.check_leads()

  async def close(self) -> None:
    """Finishes changes under way and lets go of the servers."""
    self.retire()
    for handle in (self._due, self._retry):
      if handle:
        handle.cancel()
    await self._store.close()
    await asyncio.gather(
        *self._closing, *(m.close() for m in self._modelets.values())
    )

  # What servers tell (modelets.Listener).

  def model_changed(self, modelet: modelets.Modelet, model_id: str) -> None:
    """A held model changed its status, or an unload is over."""
    self._note_failure(modelet, model_id)
    self._announce(modelet, model_id)
    self._reconcile_soon()

  def lost(self, modelet: modelets.Modelet, model_ids: list[str]) -> None:
    """The server is dead; it held these models."""
    for model_id in model_ids:
      self._announce(modelet, model_id)
    self._reconcile_soon()

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
      elif info.model_status in _RANKS:
        modelet.adopt(entry.model, info, certain=known)
        self._note_failure(modelet, model_id)
        self._announce(modelet, model_id)
    modelet.former = {}
    self._reconcile_soon()

  def forgotten(self, modelet: modelets.Modelet) -> None:
    """A lost server did not come back."""
    logging.info('%s: is forgotten', modelet.address)
    if self._modelets.get(modelet.address) is modelet:
      self._remove(modelet)

  # Keeping both in line.

  def _on_change(self, change: state_lib.Change) -> None:
    old, new = change.before, change.after
    if old and new:
      # An update that only changes the number of replicas must not disturb
      # those that serve. Any other one, also one that changes nothing, is
      # passed on: the files of a checkpoint may have been replaced.
      only_replicas = (
          old.requested_num_replicas != new.requested_num_replicas
          and old.checkpoint_path == new.checkpoint_path
          and old.acls == new.acls
          and old.overrides == new.overrides
      )
      if not only_replicas:
        self._store.get(new.model_id).failures.clear()
      for modelet in self.holders(new.model_id):
        if only_replicas:
          modelet.held[new.model_id].model = new
        else:
          modelet.update(new)
          self._announce(modelet, new.model_id)
    self._reconcile_soon()

  def _note_failure(self, modelet: modelets.Modelet, model_id: str) -> None:
    entry, held = self._store.get(model_id), modelet.held.get(model_id)
    if entry is None or held is None:
      return
    if held.status == held_lib.LOADED:
      entry.failures.forget(modelet.address)
    elif held.status == held_lib.FAILED:
      if held.counted:
        entry.failures.explain(modelet.address, held.reason)
      else:
        entry.failures.add(modelet.address, held.reason)
    held.counted = held.status == held_lib.FAILED

  def _untried(self, entry: state_lib.Published) -> bool:
    """Whether a failed model may still move to a server that is new to it."""
    return any(
        not m.held
        and entry.model.model_path in m.paths
        and not entry.failures.count(m.address)
        for m in self.servers()
    )

  def _reconcile_soon(self) -> None:
    # Once for all that happens in one turn of the event loop.
    if self._due is None and not self._retired:
      self._due = asyncio.get_running_loop().call_soon(self._reconcile)

  def _retry_after(self, seconds: float) -> None:
    if self._retry:
      self._retry.cancel()
    self._retry = asyncio.get_running_loop().call_later(
        seconds, self._reconcile_soon
    )

  def _reconcile(self) -> None:
    self._due = None
    if not self.leads():
      # Either it soon does again, or it retires.
      self._retry_after(_DOUBT_PAUSE)
      return
    plan = assigner.assign(*self._picture())
    for step in plan.unload:
      modelet = self._modelets[step.address]
      modelet.unload(step.model_id)
      self._announce(modelet, step.model_id)
    for step in self._timely(plan.load):
      modelet = self._modelets[step.address]
      modelet.load(self._store.get(step.model_id).model)
      self._announce(modelet, step.model_id)
    for step in plan.retry:
      modelet = self._modelets[step.address]
      modelet.update(self._store.get(step.model_id).model)
      self._announce(modelet, step.model_id)

  def _timely(self, steps: Sequence[assigner.Step]) -> Sequence[assigner.Step]:
    """Leaves out what servers that have not joined yet may hold already."""
    wait = self._calm_until - time.monotonic()
    if wait <= 0:
      return steps
    timely = [s for s in steps if s.model_id not in self._inherited]
    if len(timely) < len(steps):
      self._retry_after(wait)
    return timely

  def _picture(self) -> tuple[Sequence[assigner.Model], list[assigner.Server]]:
    """What the assigner needs to know; wakes it when a back-off is over."""
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
      self._retry_after(min(pauses))
    servers = [
        capacity.server(
            m.join.model_server,
            assigner.Server(
                m.address,
                m.paths,
                {k: _RANKS[h.status] for k, h in m.held.items()},
                failed.get(m.address, {}),
            ),
            self._by_chip,
        )
        for m in self.servers()
    ]
    return capacity.in_order(models, self._by_chip), servers

  def _announce(self, modelet: modelets.Modelet, model_id: str) -> None:
    """Brings the address log of a model up to date and wakes its followers.

    A server is listed as soon as its load is queued, as clients of this
    protocol expect, and as long as it is alive and did not fail.
    """
    entry = self._store.get(model_id)
    if entry is None:
      return
    held = modelet.held.get(model_id)
    wanted = held is not None and held.status != held_lib.FAILED
    listed = modelet.data_address in entry.addresses.addresses
    if wanted and not listed:
      entry.addresses.add(modelet.data_address)
    elif listed and not wanted:
      entry.addresses.remove(modelet.data_address)
    entry.changed.notify_all()

  def _remove(self, modelet: modelets.Modelet) -> None:
    del self._modelets[modelet.address]
    model_ids = list(modelet.held)
    modelet.held.clear()
    self.lost(modelet, model_ids)
    closing = asyncio.create_task(modelet.close())
    self._closing.add(closing)
    closing.add_done_callback(self._closing.discard)
