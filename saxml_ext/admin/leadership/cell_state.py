"""A table of published models that is written to disk before it changes.

A change is an *edit* of the table. Edits that arrive while the file is being
written are collected and written together next time. So a burst of publishes
costs only a few disk syncs. An edit takes effect, and its caller gets an
answer, only after its file is durable. If the write fails, the table stays
unchanged, and every caller of that batch gets the error.

All code here runs in one asyncio event loop, except for the write, which runs
in a separate thread.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
import dataclasses
from typing import TypeAlias

from absl import logging

from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.placement import assigner
from saxml_ext.admin.placement import capacity
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2

_Result: TypeAlias = admin_pb2.WatchResult
# The limit of all published models together. Each change writes all of them,
# which takes about 0.3 s at this size. 20,000 models without overrides fit.
MAX_STATE_BYTES = 4 * 2**20


class AddressLog:
  """The addresses of a published model, as WatchLoc reports them to clients.

  A client asks for the changes since sequence number n, and long-polls. The log
  keeps the newest mutations and folds older ones into a base set. So it is
  never much larger than the set that it describes.
  """

  def __init__(self):
    self._base: set[str] = set()
    self._log: list[_Result.Mutation] = []
    self._first = 0  # The sequence number of self._log[0].
    self._closed = False

  @property
  def next_seqno(self) -> int:
    """The sequence number of the next mutation."""
    return self._first + len(self._log)

  @property
  def addresses(self) -> frozenset[str]:
    """The current set of addresses."""
    return frozenset(_applied(self._base, self._log))

  def add(self, address: str) -> None:
    """Appends an addition, even of an address that is already in the set."""
    self._append(_Result.Mutation(addition=address))

  def remove(self, address: str) -> None:
    """Appends a removal."""
    self._append(_Result.Mutation(deletion=address))

  def close(self) -> None:
    """Ends the log. From now on, every reader must start over."""
    self._closed = True

  def read(self, seqno: int) -> _Result | None:
    """Returns the changes from `seqno` on, or None if there are none yet.

    Args:
      seqno: The first sequence number that the client has not seen, >= 0. If it
        is beyond the end (the client read an earlier log), the result is the
        true end without changes.
    """
    if self._closed:
      # The model was removed, so the result is an empty set and a start at 0.
      return _Result(has_fullset=True)
    end = self.next_seqno
    if seqno == end:
      return None
    if seqno > end:
      return _Result(next_seqno=end)
    if seqno >= self._first:
      return _Result(next_seqno=end, changelog=self._log[seqno - self._first :])
    return _Result(
      next_seqno=end,
      has_fullset=True,
      values=sorted(self._base),
      changelog=self._log,
    )

  def _append(self, mutation: _Result.Mutation) -> None:
    self._log.append(mutation)
    # Clients of any implementation may compare lists byte by byte, so folding
    # follows the protocol's rule: half of the log is folded as soon as it is
    # more than twice as long as the base set.
    size = len(self._log)
    if size >= 2 and size > 2 * len(self._base):
      half = size // 2
      self._base = _applied(self._base, self._log[:half])
      self._log = self._log[half:]
      self._first += half


def _applied(base: set[str], mutations: Iterable[_Result.Mutation]) -> set[str]:
  result = set(base)
  for mutation in mutations:
    result.discard(mutation.deletion)
    if mutation.addition:
      result.add(mutation.addition)
  return result


class Signal:
  """Wakes all waiters, without a reason.

  A waiter checks the state that it needs, waits, and checks again. There is no
  lock, because state and signal belong to one event loop. Nothing can change
  between the check and the wait if there is no `await` between them. A waiter
  costs one future, which is freed with the waiter.
  """

  def __init__(self):
    self._waiters: set[asyncio.Future[None]] = set()

  @property
  def num_waiters(self) -> int:
    """The number of coroutines that wait now."""
    return len(self._waiters)

  async def wait(self) -> None:
    """Waits for the next `notify_all`."""
    waiter = asyncio.get_running_loop().create_future()
    self._waiters.add(waiter)
    try:
      await waiter
    finally:
      self._waiters.discard(waiter)

  def notify_all(self) -> None:
    """Wakes all current waiters. Later waiters wait for the next call."""
    for waiter in self._waiters:
      if not waiter.done():
        waiter.set_result(None)


class Published:
  """A published model and its followers.

  Attributes:
    model: The stored model. An update replaces it and never edits it.
    addresses: The log of the data addresses that clients may call.
    changed: A signal for changes of `addresses` or of the readiness of a
      replica.
    removed: True if the model was unpublished.
    failures: The failed loads.
  """

  def __init__(self, model: admin_pb2.Model):
    self.model = model
    self.addresses = AddressLog()
    self.changed = Signal()
    self.removed = False
    self.failures = held_lib.Failures()
    self._request: tuple[admin_pb2.Model, assigner.Model] | None = None

  def placement_request(self, may_retry: bool, by_chip: bool) -> assigner.Model:
    """Returns the model as the assigner needs it; see `capacity`."""
    # The result is cached, because each change of one model reads all models.
    if not (
      self._request
      and self._request[0] is self.model
      and self._request[1].may_retry == may_retry
    ):
      self._request = self.model, capacity.model(self.model, may_retry, by_chip)
    return self._request[1]

  def close(self) -> None:
    """Marks the model as removed, and wakes its followers."""
    self.removed = True
    self.addresses.close()
    self.changed.notify_all()


@dataclasses.dataclass(frozen=True)
class Change:
  """The effect of an edit on one model: it is added, replaced or removed.

  Attributes:
    before: The old model, or None if the model is new.
    after: The new model, or None if the model is removed.
  """

  before: admin_pb2.Model | None
  after: admin_pb2.Model | None

  @property
  def growth(self) -> int:
    """The number of bytes that the change adds to the state."""
    added = self.after.ByteSize() if self.after else 0
    return added - (self.before.ByteSize() if self.before else 0)

  @property
  def model_id(self) -> str:
    model = self.after or self.before
    assert model is not None  # A change has at least one model.
    return model.model_id


# An edit gets the table as it will be when the edit is applied, and returns the
# change. It raises SaxError to refuse the change.
Edit = Callable[[Mapping[str, admin_pb2.Model]], Change]


class ModelStore:
  """The table of published models, in the order of their publication."""

  def __init__(
    self,
    state: admin_pb2.State,
    save: Callable[[admin_pb2.State], None],
    on_change: Callable[[Change], None],
  ):
    """Starts from a saved state.

    Args:
      state: The state that `save` got last.
      save: The function that makes a state durable or raises. It is called in a
        thread, one call at a time.
      on_change: The function that gets every change, right after it took
        effect.
    """
    self._entries = {m.model_id: Published(m) for m in state.models}
    self._bytes = sum(m.ByteSize() for m in state.models)
    self._save = save
    self._on_change = on_change
    self._waiting: list[tuple[Edit, asyncio.Future[None]]] = []
    self._writing: asyncio.Task[None] | None = None
    self._thread = futures.ThreadPoolExecutor(1, 'state-writer')

  def get(self, model_id: str) -> Published | None:
    """Returns the model of that id, or None if it is not published."""
    return self._entries.get(model_id)

  def __getitem__(self, model_id: str) -> Published:
    """Returns the published model of that id; raises KeyError."""
    return self._entries[model_id]

  def entries(self) -> list[Published]:
    """Returns all published models, oldest first."""
    return list(self._entries.values())

  async def apply(self, edit: Edit) -> None:
    """Makes a change. Returns when the change is durable and in effect.

    The change is made even if the caller is cancelled.

    Raises:
      SaxError: `edit` refused the change, and nothing was changed.
      FailedPrecondition: The state cannot be written or would be larger than
        MAX_STATE_BYTES, and nothing was changed.
      Unavailable: Another admin server leads now.
    """
    done = asyncio.get_running_loop().create_future()
    self._waiting.append((edit, done))
    if self._writing is None:
      self._writing = asyncio.create_task(self._write_all())
    await asyncio.shield(done)

  async def close(self) -> None:
    """Waits until pending changes are written."""
    if self._writing:
      await self._writing
    self._thread.shutdown()

  async def _write_all(self) -> None:
    try:
      while self._waiting:
        batch, self._waiting = self._waiting, []
        await self._write(batch)
    finally:
      self._writing = None

  async def _write(
    self, batch: list[tuple[Edit, asyncio.Future[None]]]
  ) -> None:
    table = {k: e.model for k, e in self._entries.items()}
    size = self._bytes
    accepted: list[tuple[Change, asyncio.Future[None]]] = []
    for edit, done in batch:
      try:
        change = edit(table)
        # A state that is already too large may still shrink.
        if change.growth > 0 and size + change.growth > MAX_STATE_BYTES:
          raise errors.FailedPrecondition(
            f'the models of the cell would have {size + change.growth} bytes of'
            f' settings, more than the limit of {MAX_STATE_BYTES}. Unpublish'
            ' models, or publish with fewer or shorter overrides'
          )
      except Exception as e:  # pylint: disable=broad-exception-caught
        _fail(done, e)  # The caller handles it.
        continue
      accepted.append((change, done))
      size += change.growth
      if change.after is None:
        del table[change.model_id]
      else:
        table[change.model_id] = change.after
    if not accepted:
      return

    state = admin_pb2.State(models=table.values())
    try:
      await asyncio.get_running_loop().run_in_executor(
        self._thread, self._save, state
      )
    except Exception as e:  # pylint: disable=broad-exception-caught
      logging.error('the state of the cell cannot be written: %s', e)
      for _, done in accepted:
        _fail(done, _write_error(e))
      return

    self._bytes = size
    for change, done in accepted:
      self._take_effect(change)
      if not done.done():
        done.set_result(None)

  def _take_effect(self, change: Change) -> None:
    entry = self._entries.get(change.model_id)
    if change.after is None:
      self._entries.pop(change.model_id).close()
    elif entry is None:
      self._entries[change.model_id] = Published(change.after)
    else:
      entry.model = change.after
    self._on_change(change)


def _write_error(error: Exception) -> errors.SaxError:
  if isinstance(error, errors.Aborted):
    return errors.Unavailable(
      f'another admin server leads now ({error}). Call the server that'
      ' location.proto names'
    )
  return errors.FailedPrecondition(
    f'the state of the cell cannot be written ({error}), so nothing was'
    ' changed. Repair the storage of fs_root, then try again'
  )


def _fail(done: asyncio.Future[None], error: Exception) -> None:
  if not done.done():
    done.set_exception(error)
    # This marks the error as retrieved, because its caller may be gone.
    done.exception()
