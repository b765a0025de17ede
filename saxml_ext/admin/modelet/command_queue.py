"""Runs what a model server is told to do, one thing after the other.

Loads, updates and unloads run in the order in which they were asked for, so a
slow load delays only what comes after it on the same server. One exception: a
model that is to be unloaded while it is still being loaded is not waited for.
Its call is cancelled and the unload sent at once; the server then discards
what it loads.
"""

import asyncio
from collections.abc import Awaitable, Callable
import functools
import time

from absl import logging
import grpc

from saxml_ext.admin.modelet import connection as connection_lib
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.common.telemetry import tracing
from saxml_ext.protobuf import modelet_pb2

# Seconds between two looks whether this admin server leads (again).
_DOUBT_PAUSE = 0.2
_UNLOAD_TRIES = 3
_UNLOAD_PAUSE = 1.0

_StatusCode = grpc.StatusCode
# These say that the call did not get through, nothing about the model.
_TRANSIENT = frozenset(
  {
    _StatusCode.ABORTED,
    _StatusCode.CANCELLED,
    _StatusCode.DEADLINE_EXCEEDED,
    _StatusCode.RESOURCE_EXHAUSTED,
    _StatusCode.UNAVAILABLE,
  }
)
_NOT_HERE = frozenset({_StatusCode.INVALID_ARGUMENT, _StatusCode.NOT_FOUND})


class Worker:
  """The queue of one model server, and the coroutine that empties it."""

  def __init__(
    self,
    connection: connection_lib.Connection,
    held: dict[str, held_lib.Held],
    leads: Callable[[], bool],
    origin: Callable[[str], tracing.Metadata],
    done: Callable[[str], None],
  ):
    """Does nothing before `start`.

    Args:
      connection: to the model server.
      held: what the server is to hold, by model id; its owner adds and removes
        entries, the worker changes the fields of those it works on.
      leads: whether model servers may be told anything at this moment.
      origin: metadata for calls about a model, by its id.
      done: called with a model's id after anything was done to it.
    """
    self._connection = connection
    self._held = held
    self._leads = leads
    self._origin = origin
    self._done = done
    # Model id of each unload that is queued or running.
    self._unloading: list[str] = []
    self._actions: asyncio.Queue[Callable[[], Awaitable[None]]]
    self._actions = asyncio.Queue()
    self._task: asyncio.Task[None] | None = None

  @property
  def unloading(self) -> frozenset[str]:
    """Ids of models that still have to leave the server."""
    return frozenset(self._unloading)

  def start(self) -> None:
    """Begins to work."""
    self._task = asyncio.create_task(self._work())

  def drop_all(self) -> None:
    """Stops, and forgets what was still to be done."""
    if self._task:
      self._task.cancel()
    self._actions = asyncio.Queue()
    self._unloading.clear()

  async def close(self) -> None:
    """Stops; what the server holds is left as it is."""
    if self._task:
      self._task.cancel()
      await asyncio.gather(self._task, return_exceptions=True)

  # What can be queued.

  def load(self, held: held_lib.Held) -> None:
    """Queues a load."""
    self._enqueue(held, self._load)

  def reload(self, held: held_lib.Held) -> None:
    """Queues an unload and a load of a model that is there in some state."""
    self._enqueue(held, self._reload)

  def update(self, held: held_lib.Held, weights: bool) -> None:
    """Queues the transfer of ACLs, and with `weights` of the checkpoint."""
    self._enqueue(held, functools.partial(self._update, weights=weights))

  def unload(self, model_id: str, held: held_lib.Held | None) -> None:
    """Queues an unload, unless the server never heard of the model.

    Args:
      model_id: of the model.
      held: what was known of it; its owner has removed it from the table.
    """
    if held and not held.told:
      return  # Its load is still queued, and is left out.
    self._unloading.append(model_id)
    self._actions.put_nowait(functools.partial(self._unload, model_id))
    if held and held.call:
      held.call.cancel()

  # The coroutine.

  async def _work(self) -> None:
    while True:
      action = await self._actions.get()
      while not self._leads():
        await asyncio.sleep(_DOUBT_PAUSE)
      try:
        await action()
      except Exception:  # pylint: disable=broad-exception-caught
        # The queue must go on; the next poll will tell what came of it.
        logging.exception('%s: an action ended badly', self._connection.address)

  def _enqueue(
    self,
    held: held_lib.Held,
    action: Callable[[held_lib.Held], Awaitable[None]],
  ) -> None:
    async def run() -> None:
      model_id = held.model.model_id
      try:
        if self._holds(held):  # Else it was unloaded meanwhile.
          await action(held)
      except asyncio.CancelledError:
        # Either this worker is stopped, or `unload` cancelled the call.
        task = asyncio.current_task()
        if self._holds(held) or (task and task.cancelling()):
          raise
        self._log('does not wait any longer for %s', model_id)
      finally:
        held.call = None
        held.pending -= 1
        held.settled = time.monotonic()
      self._done(model_id)

    held.pending += 1
    self._actions.put_nowait(run)

  def _holds(self, held: held_lib.Held) -> bool:
    return self._held.get(held.model.model_id) is held

  async def _load(self, held: held_lib.Held) -> None:
    model = held.model
    held.status, held.reported, held.sent = held_lib.LOADING, False, model
    held.told = True
    self._log('loads %s', model.model_id)
    request = modelet_pb2.LoadRequest(
      model_key=model.model_id,
      model_path=model.model_path,
      checkpoint_path=model.checkpoint_path,
      acls=model.acls,
      overrides=model.overrides,
    )
    try:
      # No deadline: loading takes as long as it takes, and the poll cancels it
      # if the server dies.
      held.call = self._connection.stub.Load(
        request, metadata=self._origin(model.model_id)
      )
      await held.call
      # Model servers also say OK when the key is there in another state.
      status = await self._connection.get_status()
    except grpc.aio.AioRpcError as e:
      self._note_failure(held, 'load', e)
      return
    for info in status.models:
      if info.model_key == model.model_id:
        held.note(info)
    if held.status == held_lib.LOADED:
      held.reason = ''
      self._log('loaded %s', model.model_id)

  async def _reload(self, held: held_lib.Held) -> None:
    # A key that is there, loaded or failed, is not loaded once more.
    await self._try_unload(held.model.model_id)
    if self._holds(held):
      await self._load(held)

  async def _update(self, held: held_lib.Held, weights: bool) -> None:
    model = held.model
    request = modelet_pb2.UpdateLoadedRequest(
      model_key=model.model_id,
      acls=model.acls,
      checkpoint_path=model.checkpoint_path if weights else '',
    )
    if weights:
      held.sent = None
    try:
      held.call = self._connection.stub.UpdateLoaded(
        request, metadata=self._origin(model.model_id)
      )
      await held.call
    except grpc.aio.AioRpcError as e:
      if e.code() == _StatusCode.NOT_FOUND:
        await self._load(held)
      else:
        self._note_failure(held, 'update', e)
    else:
      held.sent = model
      if weights:
        held.reason = ''

  def _note_failure(
    self, held: held_lib.Held, what: str, error: grpc.aio.AioRpcError
  ) -> None:
    held.reason = f'{error.code().name}: {error.details()}'
    logging.error(
      '%s: cannot %s %s: %s',
      self._connection.address,
      what,
      held.model.model_id,
      held.reason,
    )
    if error.code() in _TRANSIENT:
      held.attempts += 1  # The poll will see, and load again if need be.
    else:
      held.status, held.sent = held_lib.FAILED, held.model

  async def _unload(self, model_id: str) -> None:
    self._log('unloads %s', model_id)
    try:
      for _ in range(_UNLOAD_TRIES):
        if await self._try_unload(model_id):
          break
        await asyncio.sleep(_UNLOAD_PAUSE)
      else:
        logging.error(
          '%s: gives up unloading %s', self._connection.address, model_id
        )
    finally:
      if model_id in self._unloading:  # Not so after `drop_all`.
        self._unloading.remove(model_id)
    self._done(model_id)

  async def _try_unload(self, model_id: str) -> bool:
    try:
      await self._connection.stub.Unload(
        modelet_pb2.UnloadRequest(model_key=model_id),
        metadata=self._origin(model_id),
      )
    except grpc.aio.AioRpcError as e:
      if e.code() not in _NOT_HERE:
        logging.warning(
          '%s: cannot unload %s: %s: %s',
          self._connection.address,
          model_id,
          e.code().name,
          e.details(),
        )
        return False
    return True

  def _log(self, what: str, model_id: str) -> None:
    logging.info('%s: ' + what, self._connection.address, model_id)
