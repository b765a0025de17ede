"""One joined model server, as the admin server drives it.

Two coroutines serve a model server for as long as it is known: the `worker`
tells it what to load and unload, the `poller` asks how it fares. A `Modelet`
holds what both know, and reports every change to one listener.

Life of a model on a server:

    load() -> LOADING -> LOADED | FAILED -> unload() -> gone
                 ^----------'        (forgotten by a restarted server)

A dead server is *lost*: it holds nothing, and is polled on, for its network
may be back before it thinks of joining again.
"""

import asyncio
from collections.abc import Sequence
import time
from typing import Protocol

from absl import logging

from saxml_ext.admin.modelet import command_queue as worker_lib
from saxml_ext.admin.modelet import connection as connection_lib
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import origins
from saxml_ext.admin.modelet import poller as poller_lib
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import modelet_pb2

# Seconds for which the name of a model that served is not free again, unless
# its unload ends earlier: as long as other Sax admin servers may refuse it.
_DRAIN_SECS = 10.0


class Listener(Protocol):
  """Who wants to know what becomes of a model server."""

  def leads(self) -> bool:
    """Whether model servers may be told anything at this moment."""

  def check_leads(self) -> None:
    """Raises Unavailable once another admin server has taken over."""

  def origin(self, model_id: str) -> origins.Metadata:
    """What calls about a model carry, see `origins`."""

  def changed(self, modelet: 'Modelet', model_id: str) -> None:
    """Something about a model on this server is no longer as it was.

    It is to be held or no longer, it has another status, its unload is over,
    or the server that held it is lost.
    """

  def found(
    self, modelet: 'Modelet', status: modelet_pb2.GetStatusResponse
  ) -> None:
    """A lost server is back, with this status."""

  def forgotten(self, modelet: 'Modelet') -> None:
    """A lost server did not come back."""


class Modelet:
  """A model server and what it holds.

  Attributes:
    join: its own introduction.
    paths: the model paths that it can serve.
    held: the wanted models it holds or is about to hold, by model id.
    former: what it held when it was lost, as far as known, by model id.
    left: why it left the cell, as it told before it ended; empty if it did not.
  """

  def __init__(self, join: admin_pb2.JoinRequest, listener: Listener):
    """The server is not contacted before `connect`."""
    self.join = join
    self.paths = frozenset(join.model_server.servable_model_paths)
    self.held: dict[str, held_lib.Held] = {}
    self.former: dict[str, admin_pb2.Model | None] = {}
    self.left = ''
    self._listener = listener
    # When models that served were told to leave, monotonic seconds.
    self._drains: dict[str, float] = {}
    self._connection = connection_lib.Connection(
      join.address, self._has_unexplained
    )
    self._worker = worker_lib.Worker(
      self._connection,
      self.held,
      listener.leads,
      listener.origin,
      self._worked,
    )
    self._poller = poller_lib.Poller(
      self._connection,
      answered=self._compare,
      regained=self._regain,
      lost=self._lose,
      forgotten=lambda: listener.forgotten(self),
    )

  @property
  def address(self) -> str:
    """Where its Modelet service is."""
    return self.join.address

  @property
  def data_address(self) -> str:
    """Where its data services are."""
    return self.join.data_address or self.join.address

  @property
  def hosts(self) -> Sequence[str]:
    """Names of its hosts if it is a group of several; else empty."""
    names = self.join.model_server.hosts
    return names if len(names) > 1 else ()

  @property
  def lost(self) -> bool:
    """Whether it is dead as far as can be seen."""
    return self._poller.lost

  @property
  def status(self) -> modelet_pb2.GetStatusResponse:
    """Its last answer."""
    return self._connection.status

  @property
  def last_seen(self) -> float:
    """When it last answered, monotonic seconds."""
    return self._connection.last_seen

  @property
  def unloading(self) -> frozenset[str]:
    """Ids of models that still have to leave this server."""
    return self._worker.unloading

  def is_draining(self, model_id: str) -> bool:
    """Whether a model that served is about to leave, within a few seconds.

    A model that was still being loaded leaves behind nobody who waits for an
    answer, so it does not count.
    """
    since = self._drains.get(model_id)
    return since is not None and time.monotonic() < since + _DRAIN_SECS

  async def connect(self) -> modelet_pb2.GetStatusResponse:
    """Makes the first contact; see `Connection.open`."""
    return await self._connection.open()

  def start(self) -> None:
    """Begins to work and to poll."""
    self._worker.start()
    self._poller.start()

  def leave(self, reason: str) -> None:
    """The server tells why it is about to end; it is lost from now on."""
    if not self.lost:
      self.left = reason
      self._poller.leave(reason)

  async def close(self) -> None:
    """Stops everything; what the server holds is left as it is."""
    await asyncio.gather(self._worker.close(), self._poller.close())
    await self._connection.close()

  # What it is to hold.

  def adopt(
    self,
    model: admin_pb2.Model,
    info: modelet_pb2.GetStatusResponse.ModelWithStatus,
    certain: bool,
  ) -> None:
    """Takes a model over that the server holds already.

    Args:
      model: as published.
      info: what the server says of it.
      certain: whether it is known to have this very checkpoint.
    """
    held = held_lib.Held(model, sent=model, told=True)
    held.note(info)
    self.held[model.model_id] = held
    if held.status == held_lib.LOADED:
      # Its ACLs may be old ones, and its checkpoint as well: a former admin
      # server may have stored an update and died before it told anybody. But
      # some servers load anew whatever checkpoint they are sent, in the middle
      # of their work, so it is sent only in case of need.
      self._worker.update(held, weights=not certain)
    self._listener.changed(self, model.model_id)

  def load(self, model: admin_pb2.Model) -> None:
    """Queues a load."""
    held = held_lib.Held(model)
    self.held[model.model_id] = held
    self._worker.load(held)
    self._listener.changed(self, model.model_id)

  def update(self, model: admin_pb2.Model) -> None:
    """Queues the transfer of a changed model."""
    held = self.held[model.model_id]
    held.counted = False
    if (
      held.status == held_lib.FAILED or held.model.overrides != model.overrides
    ):
      # UpdateLoaded has no field for overrides, and no model to work on.
      held.status = held_lib.LOADING
      self._worker.reload(held)
    else:
      self._worker.update(held, weights=True)
    held.model = model
    self._listener.changed(self, model.model_id)

  def unload(self, model_id: str) -> None:
    """Queues an unload; the model is no longer held from now on."""
    held = self.held.pop(model_id, None)
    if held and held.status == held_lib.LOADED:
      self._drains[model_id] = time.monotonic()
    self._worker.unload(model_id, held)
    self._listener.changed(self, model_id)

  # What worker and poller tell.

  def _has_unexplained(self) -> bool:
    return any(
      h.status == held_lib.FAILED and not h.reason for h in self.held.values()
    )

  def _worked(self, model_id: str) -> None:
    if model_id not in self._worker.unloading:
      self._drains.pop(model_id, None)
    self._listener.changed(self, model_id)
    self._poller.poll_now()

  def _lose(self, reason: str) -> None:
    logging.warning('%s: is lost: %s', self.address, reason)
    model_ids = list(self.held)
    self.former = {
      **{k: h.sent for k, h in self.held.items()},
      **dict.fromkeys(self._worker.unloading),
    }
    self.held.clear()
    self._drains.clear()
    self._worker.drop_all()
    for model_id in model_ids:
      self._listener.changed(self, model_id)

  def _regain(self, status: modelet_pb2.GetStatusResponse) -> None:
    logging.info('%s: is back', self.address)
    self._worker.start()
    self._listener.found(self, status)

  def _compare(
    self, status: modelet_pb2.GetStatusResponse, asked: float
  ) -> None:
    """Brings what the server is to hold in line with what it says it holds."""
    reported = {m.model_key: m for m in status.models}
    for model_id, held in list(self.held.items()):
      if held.pending or held.settled >= asked:
        continue  # An older picture than ours.
      before = held.status, held.methods
      info = reported.get(model_id)
      if info is not None:
        held.note(info)
        if held.sent is None and held.may_retry(asked):
          logging.warning('%s: may hold an old %s', self.address, model_id)
          held.status = held_lib.LOADING
          self._worker.reload(held)
      elif held.reported or held.status != held_lib.FAILED:
        if held.may_retry(asked):
          logging.warning('%s: does not hold %s', self.address, model_id)
          held.status = held_lib.LOADING
          held.attempts += 1  # Back to 0 as soon as it says it does.
          self._worker.load(held)
      if before != (held.status, held.methods):
        self._listener.changed(self, model_id)
