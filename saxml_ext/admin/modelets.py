"""One joined model server, as the admin server drives it.

Two coroutines serve a model server for as long as it is known:

* the *worker* runs loads, updates and unloads one after the other, in the
  order in which they were asked for, so that a slow load delays only what
  comes after it on the same server;
* the *poll* asks for the server's status all the time. It notices that the
  server died (or came back), that it forgot a model because it was restarted,
  and how its models fare.

Life of a model on a server:

    load() -> LOADING -> LOADED | FAILED -> unload() -> gone
                 ^----------'        (forgotten by a restarted server)

A dead server is *lost*: it holds nothing, and is polled on, for its network
may be back before it thinks of joining again.
"""

import asyncio
from collections.abc import Awaitable, Callable
import functools
import time
from typing import Protocol

from absl import logging
import grpc

from saxml_ext.admin import held as held_lib
from saxml_ext.admin import liveness
from saxml_ext.admin import reach as reach_lib
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

# All in seconds. With the limits of liveness.py, a killed server is found dead
# after at most 1.5 s, a machine that was switched off after 2 s: clients must no
# longer be sent there then.
_POLL = 0.5
_POLL_FAILING = 0.2
_STATUS_TIMEOUT = 10.0
# A call that is not answered by now makes us look whether anybody is there.
_QUIET = 0.3
_PROBE_TIMEOUT = 0.3
_JOIN_TIMEOUT = 10.0
# A model server joins again after 15 minutes at the latest; until then a lost
# one is worth polling.
_KEEP_LOST = 16 * 60.0
# Between two looks whether this admin server leads (again).
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


class _Dead(Exception):
  """A server is not there any more."""


class Listener(Protocol):
  """Who wants to know what becomes of a model server."""

  def leads(self) -> bool:
    """Whether model servers may be told anything at this moment."""

  def model_changed(self, modelet: 'Modelet', model_id: str) -> None:
    """A held model changed its status, or an unload is over."""

  def lost(self, modelet: 'Modelet', model_ids: list[str]) -> None:
    """The server is dead; it held these models."""

  def found(
      self, modelet: 'Modelet', status: modelet_pb2.GetStatusResponse
  ) -> None:
    """A lost server is back, with this status."""

  def forgotten(self, modelet: 'Modelet') -> None:
    """A lost server did not come back."""


class Modelet:
  """A model server and what it holds.

  Attributes:
    join: as it introduced itself.
    paths: the model paths that it can serve.
    held: the wanted models it holds or is about to hold, by model id.
    former: what it held when it was lost, as far as known, by model id.
    lost: whether it is dead as far as we can see.
    last_seen: when it last answered, monotonic seconds.
    status: its last answer.
  """

  def __init__(self, join: admin_pb2.JoinRequest, listener: Listener):
    """The server is not contacted before `connect`."""
    self.join = join
    self.paths = frozenset(join.model_server.servable_model_paths)
    self.held: dict[str, held_lib.Held] = {}
    self.former: dict[str, admin_pb2.Model | None] = {}
    self.lost = False
    self.last_seen = time.monotonic()
    self.status = modelet_pb2.GetStatusResponse()
    self._listener = listener
    self._unloading: set[str] = set()
    self._channel = grpc_aio.insecure_channel(join.address)
    self._stub = modelet_pb2_grpc.ModeletStub(self._channel)
    self._actions: asyncio.Queue[Callable[[], Awaitable[None]]]
    self._actions = asyncio.Queue()
    self._poke = asyncio.Event()
    self._worker: asyncio.Task[None] | None = None
    self._poller: asyncio.Task[None] | None = None

  @property
  def address(self) -> str:
    """Where its Modelet service is."""
    return self.join.address

  @property
  def data_address(self) -> str:
    """Where its data services are."""
    return self.join.data_address or self.join.address

  def is_unloading(self, model_id: str) -> bool:
    """Whether the model still has to leave this server."""
    return model_id in self._unloading

  async def connect(self) -> modelet_pb2.GetStatusResponse:
    """Makes the first contact.

    Returns:
      What the server says of itself.

    Raises:
      DeadlineExceeded: it does not answer; model servers know this code as a
        reason to join again.
    """
    try:
      self.status = await self._get_status(_JOIN_TIMEOUT, wait_for_ready=True)
    except grpc.aio.AioRpcError as e:
      raise errors.DeadlineExceeded(
          f'model server {self.address} does not answer GetStatus within '
          f'{_JOIN_TIMEOUT:g} s ({e.code().name}: {e.details()}): join when it '
          'serves, with an address that the admin server can reach'
      ) from e
    self.last_seen = time.monotonic()
    return self.status

  def start(self) -> None:
    """Begins to work and to poll."""
    self._worker = asyncio.create_task(self._work())
    self._poller = asyncio.create_task(self._poll())

  async def close(self) -> None:
    """Stops everything; what the server holds is left as it is."""
    tasks = [t for t in (self._worker, self._poller) if t]
    for task in tasks:
      task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await self._channel.close()

  def poll_now(self) -> None:
    """Asks for the status at once; there may be news."""
    self._poke.set()

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
    held = held_lib.Held(model, sent=model)
    held.note(info)
    self.held[model.model_id] = held
    if held.status == held_lib.LOADED:
      # Its ACLs may be old ones, and its checkpoint as well: a former admin
      # server may have stored an update and died before it told anybody. But
      # some servers load anew whatever checkpoint they are sent, in the middle
      # of their work, so it is sent only in case of need.
      self._enqueue(held, functools.partial(self._update, reload=not certain))

  def load(self, model: admin_pb2.Model) -> None:
    """Queues a load."""
    held = held_lib.Held(model)
    self.held[model.model_id] = held
    self._enqueue(held, self._load)

  def update(self, model: admin_pb2.Model) -> None:
    """Queues the transfer of a changed model."""
    held = self.held[model.model_id]
    held.counted = False
    if (
        held.status == held_lib.FAILED
        or held.model.overrides != model.overrides
    ):
      # UpdateLoaded has no field for overrides, and no model to work on.
      held.status = held_lib.LOADING
      self._enqueue(held, self._reload)
    else:
      self._enqueue(held, functools.partial(self._update, reload=True))
    held.model = model

  def unload(self, model_id: str) -> None:
    """Queues an unload; the model is no longer held from now on."""
    self.held.pop(model_id, None)
    self._unloading.add(model_id)
    self._actions.put_nowait(functools.partial(self._unload, model_id))

  # The worker.

  async def _work(self) -> None:
    while True:
      action = await self._actions.get()
      while not self._listener.leads():
        await asyncio.sleep(_DOUBT_PAUSE)
      try:
        await action()
      except Exception:  # pylint: disable=broad-exception-caught
        # The queue must go on; the next poll will tell what came of it.
        logging.exception('%s: an action ended badly', self.address)

  def _enqueue(
      self,
      held: held_lib.Held,
      action: Callable[[held_lib.Held], Awaitable[None]],
  ) -> None:
    async def run() -> None:
      model_id = held.model.model_id
      try:
        if self.held.get(model_id) is held:  # Else it was unloaded meanwhile.
          await action(held)
      finally:
        held.pending -= 1
        held.settled = time.monotonic()
      self._listener.model_changed(self, model_id)
      self.poll_now()

    held.pending += 1
    self._actions.put_nowait(run)

  async def _load(self, held: held_lib.Held) -> None:
    model = held.model
    held.status, held.reported, held.sent = held_lib.LOADING, False, model
    logging.info('%s: loads %s', self.address, model.model_id)
    # No deadline: loading takes as long as it takes, and the poll cancels it
    # if the server dies.
    request = modelet_pb2.LoadRequest(
        model_key=model.model_id,
        model_path=model.model_path,
        checkpoint_path=model.checkpoint_path,
        acls=model.acls,
        overrides=model.overrides,
    )
    try:
      await self._stub.Load(request)
      # Model servers also say OK when the key is there in another state.
      self.status = await self._get_status(_STATUS_TIMEOUT)
    except grpc.aio.AioRpcError as e:
      self._note_failure(held, 'load', e)
      return
    for info in self.status.models:
      if info.model_key == model.model_id:
        held.note(info)
    if held.status == held_lib.LOADED:
      held.reason = ''
      logging.info('%s: loaded %s', self.address, model.model_id)

  async def _reload(self, held: held_lib.Held) -> None:
    # A key that is there, loaded or failed, is not loaded once more.
    await self._try_unload(held.model.model_id)
    await self._load(held)

  async def _update(self, held: held_lib.Held, reload: bool) -> None:
    model = held.model
    request = modelet_pb2.UpdateLoadedRequest(
        model_key=model.model_id,
        acls=model.acls,
        checkpoint_path=model.checkpoint_path if reload else '',
    )
    if reload:
      held.sent = None
    try:
      await self._stub.UpdateLoaded(request)
    except grpc.aio.AioRpcError as e:
      if e.code() == _StatusCode.NOT_FOUND:
        await self._load(held)
      else:
        self._note_failure(held, 'update', e)
    else:
      held.sent = model
      if reload:
        held.reason = ''

  def _note_failure(
      self, held: held_lib.Held, what: str, error: grpc.aio.AioRpcError
  ) -> None:
    held.reason = f'{error.code().name}: {error.details()}'
    logging.error(
        '%s: cannot %s %s: %s',
        self.address,
        what,
        held.model.model_id,
        held.reason,
    )
    if error.code() in _TRANSIENT:
      held.attempts += 1  # The poll will see, and load again if need be.
    else:
      held.status, held.sent = held_lib.FAILED, held.model

  async def _unload(self, model_id: str) -> None:
    logging.info('%s: unloads %s', self.address, model_id)
    try:
      for _ in range(_UNLOAD_TRIES):
        if await self._try_unload(model_id):
          break
        await asyncio.sleep(_UNLOAD_PAUSE)
      else:
        logging.error('%s: gives up unloading %s', self.address, model_id)
    finally:
      self._unloading.discard(model_id)
    self._listener.model_changed(self, model_id)

  async def _try_unload(self, model_id: str) -> bool:
    try:
      await self._stub.Unload(modelet_pb2.UnloadRequest(model_key=model_id))
    except grpc.aio.AioRpcError as e:
      if e.code() not in _NOT_HERE:
        logging.warning(
            '%s: cannot unload %s: %s: %s',
            self.address,
            model_id,
            e.code().name,
            e.details(),
        )
        return False
    return True

  # The poll.

  async def _get_status(
      self, timeout: float, wait_for_ready: bool = False
  ) -> modelet_pb2.GetStatusResponse:
    unexplained = any(
        h.status == held_lib.FAILED and not h.reason for h in self.held.values()
    )
    return await self._stub.GetStatus(
        modelet_pb2.GetStatusRequest(
            include_method_stats=True, include_failure_reasons=unexplained
        ),
        timeout=timeout,
        wait_for_ready=wait_for_ready,
    )

  async def _poll(self) -> None:
    live = liveness.Liveness()
    while True:
      pause = _POLL_FAILING if live.failing and not self.lost else _POLL
      try:
        async with asyncio.timeout(pause):
          await self._poke.wait()
      except TimeoutError:
        pass
      self._poke.clear()
      asked = time.monotonic()
      try:
        status = await self._watched_status(live, asked)
      except _Dead as e:
        self._lose(str(e))
        continue
      except grpc.aio.AioRpcError as e:
        reach = await reach_lib.probe(self.address, _PROBE_TIMEOUT)
        now = time.monotonic()
        dead = live.failed(asked, now, reach)
        if self.lost:
          if live.silent_for(now) > _KEEP_LOST:
            self._listener.forgotten(self)
        elif dead:
          self._lose(f'{e.code().name}: {e.details()}')
        continue
      live.succeeded()
      self.last_seen, self.status = time.monotonic(), status
      if self.lost:
        self._regain(status)
      else:
        self._compare(status, asked)

  async def _watched_status(
      self, live: liveness.Liveness, asked: float
  ) -> modelet_pb2.GetStatusResponse:
    """Asks for the status; raises _Dead if the server ceases to be there."""
    call = asyncio.create_task(self._get_status(_STATUS_TIMEOUT))
    try:
      while True:
        done, _ = await asyncio.wait((call,), timeout=_QUIET)
        if done or self.lost:
          return await call
        reach = await reach_lib.probe(self.address, _PROBE_TIMEOUT)
        if reach is reach_lib.Reach.TAKEN or call.done():
          continue
        if live.failed(asked, time.monotonic(), reach):
          raise _Dead(f'{self.address} takes no connections: {reach.value}')
    finally:
      call.cancel()

  def _lose(self, reason: str) -> None:
    logging.warning('%s: is lost: %s', self.address, reason)
    self.lost = True
    self._worker.cancel()
    self._actions = asyncio.Queue()
    model_ids = list(self.held)
    self.former = {
        **{k: h.sent for k, h in self.held.items()},
        **dict.fromkeys(self._unloading),
    }
    self.held.clear()
    self._unloading.clear()
    self._listener.lost(self, model_ids)

  def _regain(self, status: modelet_pb2.GetStatusResponse) -> None:
    logging.info('%s: is back', self.address)
    self.lost = False
    self._worker = asyncio.create_task(self._work())
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
          self._enqueue(held, self._reload)
      elif held.reported or held.status != held_lib.FAILED:
        if held.may_retry(asked):
          logging.warning('%s: does not hold %s', self.address, model_id)
          held.status = held_lib.LOADING
          held.attempts += 1  # Back to 0 as soon as it says it does.
          self._enqueue(held, self._load)
      if before != (held.status, held.methods):
        self._listener.model_changed(self, model_id)
