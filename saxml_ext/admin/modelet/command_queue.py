"""Sends commands to a model server, one after the other.

Loads, updates and unloads run in the order of their requests. So a slow load
delays only later commands of the same server. There is one exception: an unload
of a model that is still being loaded does not wait for the load. The load's
call is cancelled, and the unload is sent at once. The server then discards the
model.
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

# The number of seconds between checks that this admin server leads again.
_DOUBT_PAUSE = 0.2
_UNLOAD_TRIES = 3
_UNLOAD_PAUSE = 1.0

_StatusCode = grpc.StatusCode
# With these codes, the call did not reach the server. They do not concern the
# model.
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
      connection: The connection to the model server.
      held: The models that the server must hold, by model id. The owner of the
        map adds and removes entries. The worker changes the fields of the
        entries that it handles.
      leads: A function that returns True if model servers may get commands now.
      origin: A function that returns the metadata for calls about a model.
      done: A function that gets the id of a model after each command for it.
    """
    self._connection = connection
    self._held = held
    self._leads = leads
    self._origin = origin
    self._done = done
    # The list has the model id of each unload that is queued or running.
    self._unloading: list[str] = []
    self._actions: asyncio.Queue[Callable[[], Awaitable[None]]]
    self._actions = asyncio.Queue()
    self._task: asyncio.Task[None] | None = None

  @property
  def unloading(self) -> frozenset[str]:
    """The ids of the models that the server must still unload."""
    return frozenset(self._unloading)

  def start(self) -> None:
    """Starts to send commands."""
    self._task = asyncio.create_task(self._work())

  def drop_all(self) -> None:
    """Stops, and drops all pending commands."""
    if self._task:
      self._task.cancel()
    self._actions = asyncio.Queue()
    self._unloading.clear()

  async def close(self) -> None:
    """Stops. The server keeps its models."""
    if self._task:
      self._task.cancel()
      await asyncio.gather(self._task, return_exceptions=True)

  # These methods queue commands.

  def load(self, held: held_lib.Held) -> None:
    """Queues a load."""
    self._enqueue(held, self._load)

  def reload(self, held: held_lib.Held) -> None:
    """Queues an unload and a load of a model that is on the server."""
    self._enqueue(held, self._reload)

  def update(self, held: held_lib.Held, weights: bool) -> None:
    """Queues an update of the ACLs and, with `weights`, of the checkpoint."""
    self._enqueue(held, functools.partial(self._update, weights=weights))

  def unload(self, model_id: str, held: held_lib.Held | None) -> None:
    """Queues an unload, unless the server never got the model.

    Args:
      model_id: The id of the model.
      held: The known state of the model, which its owner has removed from the
        map.
    """
    if held and not held.commanded:
      return  # Its queued load will be skipped.
    self._unloading.append(model_id)
    self._actions.put_nowait(functools.partial(self._unload, model_id))
    if held and held.call:
      held.call.cancel()

  # The coroutine and its commands follow.

  async def _work(self) -> None:
    while True:
      action = await self._actions.get()
      while not self._leads():
        await asyncio.sleep(_DOUBT_PAUSE)
      try:
        await action()
      except Exception:  # pylint: disable=broad-exception-caught
        # The queue must continue. The next poll will report the result.
        logging.exception('%s: a command failed', self._connection.address)

  def _enqueue(
    self,
    held: held_lib.Held,
    action: Callable[[held_lib.Held], Awaitable[None]],
  ) -> None:
    async def run() -> None:
      model_id = held.model.model_id
      try:
        if self._holds(held):  # Otherwise, it was unloaded meanwhile.
          await action(held)
      except asyncio.CancelledError:
        # Either this worker is stopped, or `unload` cancelled the call.
        task = asyncio.current_task()
        if self._holds(held) or (task and task.cancelling()):
          raise
        self._log('no longer waits for the load of %s', model_id)
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
    held.commanded = True
    self._log('loads %s', model.model_id)
    request = modelet_pb2.LoadRequest(
      model_key=model.model_id,
      model_path=model.model_path,
      checkpoint_path=model.checkpoint_path,
      acls=model.acls,
      overrides=model.overrides,
    )
    try:
      # There is no deadline, because a load may take any time. The poll cancels
      # the call if the server dies.
      held.call = self._connection.stub.Load(
        request, metadata=self._origin(model.model_id)
      )
      await held.call
      # Model servers also return OK if the key exists in another state.
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
    # A server does not load a key again that it has already loaded or that
    # failed.
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
      held.attempts += 1  # The next poll loads it again if needed.
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
          '%s: %s could not be unloaded. No further attempt is made',
          self._connection.address,
          model_id,
        )
    finally:
      if model_id in self._unloading:  # `drop_all` removes it.
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
