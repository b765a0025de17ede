"""Controls one joined model server for the admin server.

Two coroutines handle a model server while it is known. A `command_queue.Worker`
sends the commands to load and unload. `Modelet` polls the status. Every change
is an event in one queue, which the controller empties.

The states of a model on a server are:

    load() -> LOADING -> LOADED | FAILED -> unload() -> gone
                 ^----------'        (forgotten by a restarted server)

A dead server is *lost* and holds no models. It is still polled, because its
network may recover before the server joins again.
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

# All of these are in seconds. With the limits of `connection.Liveness`, a
# killed server counts as dead after at most 1.5 s. A machine that was switched
# off counts as dead after 2 s. From then on, clients must not be sent there.
_POLL = 0.5
_POLL_FAILING = 0.2
# If a call is not answered by then, a connection shows if the server is there.
_QUIET = 0.3
_PROBE_TIMEOUT = 0.3
# A model server joins again within 15 minutes. Until then, polling a lost one
# is useful.
_KEEP_LOST = 16 * 60.0
# The name of a loaded model is not free for this many seconds after an unload,
# unless the unload ends earlier. Other Sax admin servers refuse it for as long.
_DRAIN_SECS = 10.0


@dataclasses.dataclass(frozen=True)
class Changed:
  """A model on a server has changed.

  The server must hold the model now, or no longer. Or the model has a new
  status, its unload is finished, or its server is lost.
  """

  modelet: 'Modelet'
  model_id: str


@dataclasses.dataclass(frozen=True)
class Reachable:
  """A server is reachable with this status, for the first time or again."""

  modelet: 'Modelet'
  status: modelet_pb2.GetStatusResponse


@dataclasses.dataclass(frozen=True)
class Forgotten:
  """A lost server did not come back."""

  modelet: 'Modelet'


# None only makes the controller check its plan again.
Event: TypeAlias = Changed | Reachable | Forgotten | None


class _Dead(Exception):
  """A server has disappeared."""


class Modelet:
  """A model server and its models.

  Attributes:
    join: The server's announcement.
    paths: The model paths that it can serve.
    held: The models that it must hold, by model id.
    former: The models that it held when it was lost, as far as known, by model
      id.
    left: The reason that it gave when it left the cell; '' if it did not leave.
    lost: True if it counts as dead.
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
      join: The server's announcement.
      leads: A function that returns True if model servers may get commands now.
      origin: A function that returns the metadata for calls about a model.
      events: The queue for all changes of the server.
    """
    self.join = join
    self.paths = frozenset(join.model_server.servable_model_paths)
    self.held: dict[str, held_lib.Held] = {}
    self.former: dict[str, admin_pb2.Model | None] = {}
    self.left = ''
    self.lost = False
    self._events = events
    # The values are the times of the unloads of loaded models, in monotonic
    # seconds.
    self._drains: dict[str, float] = {}
    self._connection = connection_lib.Connection(
      join.address, self._wants_reasons
    )
    self._worker = worker_lib.Worker(
      self._connection, self.held, leads, origin, self._worked
    )
    self._live = connection_lib.Liveness()
    self._poke = asyncio.Event()
    self._polling: asyncio.Task[None] | None = None

  @property
  def address(self) -> str:
    """The address of its Modelet service."""
    return self.join.address

  @property
  def data_address(self) -> str:
    """The address of its data services."""
    return self.join.data_address or self.join.address

  @property
  def hosts(self) -> Sequence[str]:
    """The names of its hosts if it is a group; empty for a single host."""
    names = self.join.model_server.hosts
    return names if len(names) > 1 else ()

  @property
  def status(self) -> modelet_pb2.GetStatusResponse:
    """The last status that the server sent."""
    return self._connection.status

  @property
  def last_seen(self) -> float:
    """The time of the last status, in monotonic seconds."""
    return self._connection.last_seen

  @property
  def unloading(self) -> frozenset[str]:
    """The ids of the models that this server must still unload."""
    return self._worker.unloading

  def is_draining(self, model_id: str) -> bool:
    """Returns True if a loaded model is being unloaded, for a few seconds.

    A model that was still being loaded does not count, because no client waits
    for its answers.
    """
    since = self._drains.get(model_id)
    return since is not None and time.monotonic() < since + _DRAIN_SECS

  async def connect(
    self, timeout: float | None = None
  ) -> modelet_pb2.GetStatusResponse:
    """Contacts the server for the first time; see `Connection.open`."""
    return await self._connection.open(timeout or connection_lib.JOIN_TIMEOUT)

  def start(self) -> None:
    """Starts to send commands and to poll."""
    self._worker.start()
    self._polling = asyncio.create_task(self._poll())

  def leave(self, reason: str) -> None:
    """Marks the server as lost, because it announced its end.

    It is not polled again, because it may answer until it has ended. It joins
    again after a restart.

    Args:
      reason: The reason that the server gave.
    """
    if self.lost:
      return
    self.left = reason
    if self._polling:
      self._polling.cancel()
    self._polling = asyncio.create_task(self._wait_out())
    self._lose(reason)

  async def close(self) -> None:
    """Stops all work. The server keeps its models."""
    if self._polling:
      self._polling.cancel()
      await asyncio.gather(self._polling, return_exceptions=True)
    await self._worker.close()
    await self._connection.close()

  # These methods change the set of models that the server must hold.

  def adopt(
    self,
    model: admin_pb2.Model,
    info: modelet_pb2.GetStatusResponse.ModelWithStatus,
    certain: bool,
  ) -> None:
    """Adopts a model that the server already holds.

    Args:
      model: The published model.
      info: The server's report of the model.
      certain: True if the server is known to have this checkpoint.
    """
    held = held_lib.Held(model, sent=model, commanded=True)
    held.note(info)
    self.held[model.model_id] = held
    if held.status == held_lib.LOADED:
      # The server's ACLs and its checkpoint may be old: a former admin server
      # may have stored an update, and died before it sent the update. But some
      # servers reload any checkpoint that they get, and interrupt their work.
      # So the checkpoint is sent only if it may be old.
      self._worker.update(held, weights=not certain)
    self._change(model.model_id)

  def load(self, model: admin_pb2.Model) -> None:
    """Queues a load."""
    held = held_lib.Held(model)
    self.held[model.model_id] = held
    self._worker.load(held)
    self._change(model.model_id)

  def update(self, model: admin_pb2.Model) -> None:
    """Queues an update to a changed model."""
    held = self.held[model.model_id]
    held.counted = False
    if (
      held.status == held_lib.FAILED or held.model.overrides != model.overrides
    ):
      # UpdateLoaded has no field for overrides, and needs a loaded model.
      held.status = held_lib.LOADING
      self._worker.reload(held)
    else:
      self._worker.update(held, weights=True)
    held.model = model
    self._change(model.model_id)

  def unload(self, model_id: str) -> None:
    """Queues an unload. From now on, the server does not hold the model."""
    held = self.held.pop(model_id, None)
    if held and held.status == held_lib.LOADED:
      self._drains[model_id] = time.monotonic()
    self._worker.unload(model_id, held)
    self._change(model_id)

  # These methods handle changes of the server.

  def _change(self, model_id: str) -> None:
    self._events.put_nowait(Changed(self, model_id))

  def _wants_reasons(self) -> bool:
    return any(
      h.status == held_lib.LOADING
      or (h.status == held_lib.FAILED and not h.reason)
      for h in self.held.values()
    )

  def _worked(self, model_id: str) -> None:
    if model_id not in self._worker.unloading:
      self._drains.pop(model_id, None)
    self._change(model_id)
    self._poke.set()  # The status may have changed.

  def _lose(self, reason: str) -> None:
    self.lost = True
    logging.warning('%s: lost: %s', self.address, reason)
    self.former = {
      **{k: h.sent for k, h in self.held.items()},
      **dict.fromkeys(self._worker.unloading),
    }
    self.release()
    self._drains.clear()
    self._worker.drop_all()

  def release(self) -> None:
    """Clears the set of models that the server must hold."""
    model_ids = list(self.held)
    self.held.clear()
    for model_id in model_ids:
      self._change(model_id)

  def _regain(self, status: modelet_pb2.GetStatusResponse) -> None:
    self.lost = False
    logging.info('%s: is back', self.address)
    self._worker.start()
    self._events.put_nowait(Reachable(self, status))

  async def _poll(self) -> None:
    while True:
      await self._pause()
      begin = time.monotonic()
      try:
        status = await self._watched_status(begin)
      except _Dead as e:
        self._lose(str(e))
      except grpc.aio.AioRpcError as e:
        await self._judge(e, begin)
      else:
        self._live.succeeded()
        if self.lost:
          self._regain(status)
        else:
          self._compare(status, begin)

  async def _wait_out(self) -> None:
    await asyncio.sleep(_KEEP_LOST)
    self._events.put_nowait(Forgotten(self))

  async def _pause(self) -> None:
    failing = self._live.failing and not self.lost
    try:
      async with asyncio.timeout(_POLL_FAILING if failing else _POLL):
        await self._poke.wait()
    except TimeoutError:
      pass  # This is the usual case.
    self._poke.clear()

  async def _judge(self, error: grpc.aio.AioRpcError, begin: float) -> None:
    """Decides after a failed call if the server is dead."""
    probed = await connection_lib.probe(
      self._connection.address, _PROBE_TIMEOUT
    )
    now = time.monotonic()
    dead = self._live.failed(begin, now, probed)
    if self.lost:
      if self._live.silent_for(now) > _KEEP_LOST:
        self._events.put_nowait(Forgotten(self))
    elif dead:
      self._lose(f'{error.code().name}: {error.details()}')

  async def _watched_status(
    self, begin: float
  ) -> modelet_pb2.GetStatusResponse:
    """Requests the status; raises _Dead if the server disappears meanwhile."""
    call = asyncio.create_task(self._connection.get_status())
    try:
      while True:
        done, _ = await asyncio.wait((call,), timeout=_QUIET)
        if done or self.lost:
          return await call
        probed = await connection_lib.probe(
          self._connection.address, _PROBE_TIMEOUT
        )
        if probed is connection_lib.PortState.TAKEN or call.done():
          continue
        if self._live.failed(begin, time.monotonic(), probed):
          raise _Dead(
            f'{self._connection.address} accepts no connections: {probed.value}'
          )
    finally:
      call.cancel()

  def _compare(
    self, status: modelet_pb2.GetStatusResponse, begin: float
  ) -> None:
    """Compares the server's models with the expected ones, and fixes them."""
    reported = {m.model_key: m for m in status.models}
    for model_id, held in list(self.held.items()):
      info = reported.get(model_id)
      if held.pending or held.settled >= begin:
        # The status is older than our state, or a command will change it.
        if info is not None:
          held.note_progress(info)
        continue
      before = held.status, held.methods
      if info is not None:
        held.note(info)
        if held.sent is None and held.may_retry(begin):
          logging.warning('%s: may have an old %s', self.address, model_id)
          held.status = held_lib.LOADING
          self._worker.reload(held)
      elif held.reported or held.status != held_lib.FAILED:
        if held.may_retry(begin):
          logging.warning('%s: does not have %s', self.address, model_id)
          held.status = held_lib.LOADING
          held.attempts += 1  # A report of the model resets it.
          self._worker.load(held)
      if before != (held.status, held.methods):
        self._change(model_id)
