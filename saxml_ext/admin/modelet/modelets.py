"""One joined model server, as the admin server drives it.

Two coroutines serve a model server for as long as it is known: a
`command_queue.Worker` tells it what to load and unload, and `Modelet` polls its
status. Every change is an event in one queue, which the controller empties.

Life of a model on a server:

    load() -> LOADING -> LOADED | FAILED -> unload() -> gone
                 ^----------'        (forgotten by a restarted server)

A dead server is *lost*: it holds nothing, and is polled on, for its network
may be back before it thinks of joining again.
"""

import asyncio
from collections.abc import Callable, Sequence
import dataclasses
import time
from typing import TypeAlias

from absl import logging
import grpc

from saxml_ext.admin.modelet import command_queue as worker_lib
from saxml_ext.admin.modelet import connection as connection_lib
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.common.telemetry import tracing
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import modelet_pb2

# All in seconds. With the limits of `connection.Liveness`, a killed server is
# found dead after at most 1.5 s, a machine that was switched off after 2 s: from
# then on clients must not be sent there.
_POLL = 0.5
_POLL_FAILING = 0.2
# A call that is not answered by now makes us look whether anybody is there.
_QUIET = 0.3
_PROBE_TIMEOUT = 0.3
# A model server joins again after 15 minutes at the latest; until then a lost
# one is worth polling.
_KEEP_LOST = 16 * 60.0
# Seconds for which the name of a model that served is not free again, unless
# its unload ends earlier: as long as other Sax admin servers may refuse it.
_DRAIN_SECS = 10.0


@dataclasses.dataclass(frozen=True)
class Changed:
  """Something about a model on a server is no longer as it was.

  It is to be held or no longer, it has another status, its unload is over, or
  the server that held it is lost.
  """

  modelet: 'Modelet'
  model_id: str


@dataclasses.dataclass(frozen=True)
class Found:
  """A server is there, for the first time or again, with this status."""

  modelet: 'Modelet'
  status: modelet_pb2.GetStatusResponse


@dataclasses.dataclass(frozen=True)
class Forgotten:
  """A lost server did not come back."""

  modelet: 'Modelet'


# None only asks the controller to look at its plan again.
Event: TypeAlias = Changed | Found | Forgotten | None


class _Dead(Exception):
  """A server is not there any more."""


class Modelet:
  """A model server and what it holds.

  Attributes:
    join: its own introduction.
    paths: the model paths that it can serve.
    held: the wanted models it holds or is about to hold, by model id.
    former: what it held when it was lost, as far as known, by model id.
    left: why it left the cell, as it told before it ended; empty if it did not.
    lost: True if it is dead as far as can be seen.
  """

  def __init__(
    self,
    join: admin_pb2.JoinRequest,
    leads: Callable[[], bool],
    origin: Callable[[str], tracing.Metadata],
    events: 'asyncio.Queue[Event]',
  ):
    """Does not contact the server before `connect`.

    Args:
      join: The server's introduction.
      leads: Returns whether model servers may be given orders at this moment.
      origin: Returns the metadata for calls about a model.
      events: The queue for all that happens to the server.
    """
    self.join = join
    self.paths = frozenset(join.model_server.servable_model_paths)
    self.held: dict[str, held_lib.Held] = {}
    self.former: dict[str, admin_pb2.Model | None] = {}
    self.left = ''
    self.lost = False
    self._events = events
    # When models that served were told to leave, monotonic seconds.
    self._drains: dict[str, float] = {}
    self._connection = connection_lib.Connection(
      join.address, self._has_unexplained
    )
    self._worker = worker_lib.Worker(
      self._connection, self.held, leads, origin, self._worked
    )
    self._live = connection_lib.Liveness()
    self._poke = asyncio.Event()
    self._polling: asyncio.Task[None] | None = None

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
    self._polling = asyncio.create_task(self._poll())

  def leave(self, reason: str) -> None:
    """Takes the server for lost, because it says that it is about to end.

    It is not polled again, because it may answer until it has ended. It joins
    when it is back.

    Args:
      reason: Why it ends, as it said.
    """
    if self.lost:
      return
    self.left = reason
    if self._polling:
      self._polling.cancel()
    self._polling = asyncio.create_task(self._wait_out())
    self._lose(reason)

  async def close(self) -> None:
    """Stops everything; what the server holds is left as it is."""
    if self._polling:
      self._polling.cancel()
      await asyncio.gather(self._polling, return_exceptions=True)
    await self._worker.close()
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
    self._change(model.model_id)

  def load(self, model: admin_pb2.Model) -> None:
    """Queues a load."""
    held = held_lib.Held(model)
    self.held[model.model_id] = held
    self._worker.load(held)
    self._change(model.model_id)

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
    self._change(model.model_id)

  def unload(self, model_id: str) -> None:
    """Queues an unload; the model is no longer held from now on."""
    held = self.held.pop(model_id, None)
    if held and held.status == held_lib.LOADED:
      self._drains[model_id] = time.monotonic()
    self._worker.unload(model_id, held)
    self._change(model_id)

  # What happens to it.

  def _change(self, model_id: str) -> None:
    self._events.put_nowait(Changed(self, model_id))

  def _has_unexplained(self) -> bool:
    return any(
      h.status == held_lib.FAILED and not h.reason for h in self.held.values()
    )

  def _worked(self, model_id: str) -> None:
    if model_id not in self._worker.unloading:
      self._drains.pop(model_id, None)
    self._change(model_id)
    self._poke.set()  # There may be news.

  def _lose(self, reason: str) -> None:
    self.lost = True
    logging.warning('%s: is lost: %s', self.address, reason)
    self.former = {
      **{k: h.sent for k, h in self.held.items()},
      **dict.fromkeys(self._worker.unloading),
    }
    self.release()
    self._drains.clear()
    self._worker.drop_all()

  def release(self) -> None:
    """Forgets all that it was to hold."""
    model_ids = list(self.held)
    self.held.clear()
    for model_id in model_ids:
      self._change(model_id)

  def _regain(self, status: modelet_pb2.GetStatusResponse) -> None:
    self.lost = False
    logging.info('%s: is back', self.address)
    self._worker.start()
    self._events.put_nowait(Found(self, status))

  async def _poll(self) -> None:
    while True:
      await self._pause()
      asked = time.monotonic()
      try:
        status = await self._watched_status(asked)
      except _Dead as e:
        self._lose(str(e))
      except grpc.aio.AioRpcError as e:
        await self._judge(e, asked)
      else:
        self._live.succeeded()
        if self.lost:
          self._regain(status)
        else:
          self._compare(status, asked)

  async def _wait_out(self) -> None:
    await asyncio.sleep(_KEEP_LOST)
    self._events.put_nowait(Forgotten(self))

  async def _pause(self) -> None:
    failing = self._live.failing and not self.lost
    try:
      async with asyncio.timeout(_POLL_FAILING if failing else _POLL):
        await self._poke.wait()
    except TimeoutError:
      pass  # The usual end: nobody poked.
    self._poke.clear()

  async def _judge(self, error: grpc.aio.AioRpcError, asked: float) -> None:
    """Decides what a failed call says of the server's life."""
    reach = await connection_lib.probe(self._connection.address, _PROBE_TIMEOUT)
    now = time.monotonic()
    dead = self._live.failed(asked, now, reach)
    if self.lost:
      if self._live.silent_for(now) > _KEEP_LOST:
        self._events.put_nowait(Forgotten(self))
    elif dead:
      self._lose(f'{error.code().name}: {error.details()}')

  async def _watched_status(
    self, asked: float
  ) -> modelet_pb2.GetStatusResponse:
    """Asks for the status; raises _Dead if the server ceases to be there."""
    call = asyncio.create_task(self._connection.get_status())
    try:
      while True:
        done, _ = await asyncio.wait((call,), timeout=_QUIET)
        if done or self.lost:
          return await call
        reach = await connection_lib.probe(
          self._connection.address, _PROBE_TIMEOUT
        )
        if reach is connection_lib.Reach.TAKEN or call.done():
          continue
        if self._live.failed(asked, time.monotonic(), reach):
          raise _Dead(
            f'{self._connection.address} takes no connections: {reach.value}'
          )
    finally:
      call.cancel()

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
        self._change(model_id)
