"""What a cell publishes: a table of models that is on disk before it changes.

A change is an *edit* of the table. Edits that arrive while the file is being
written are collected and written together next time, so a burst of publishes
costs a few disk syncs and not one each. An edit takes effect (and its caller
is answered) only after the file that holds it is durable; when the write
fails, the table stays as it was and every caller of that batch gets the error.

Everything here runs in one asyncio event loop, but for the write itself, which
runs in a thread of its own.
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


class AddressLog:
  """The addresses of a published model, as WatchLoc reports them to clients.

  A client asks "what changed since sequence number n" and long-polls. The log
  keeps the newest mutations and folds older ones into a base set, so that it
  never grows much beyond the set it describes.
  """

  def __init__(self):
    self._base: set[str] = set()
    self._log: list[_Result.Mutation] = []
    self._first = 0  # Sequence number of self._log[0].
    self._closed = False

  @property
  def next_seqno(self) -> int:
    """The sequence number that the next mutation will get."""
    return self._first + len(self._log)

  @property
  def addresses(self) -> frozenset[str]:
    """The set as it is now."""
    return frozenset(_applied(self._base, self._log))

  def add(self, address: str) -> None:
    """Appends an addition, also of an address that is already there."""
    self._append(_Result.Mutation(addition=address))

  def remove(self, address: str) -> None:
    """Appends a removal."""
    self._append(_Result.Mutation(deletion=address))

  def close(self) -> None:
    """Ends the log: from now on every reader is told to start over."""
    self._closed = True

  def read(self, seqno: int) -> _Result | None:
    """Returns what happened from `seqno` on; None if nothing has yet.

    Args:
      seqno: the first sequence number that the client has not seen, >= 0. One
        beyond the end (a client of an earlier log) is answered at once with
        the true end and no changes.
    """
    if self._closed:
      # The model is gone: an empty list, starting over at 0.
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
    # Clients of any implementation may compare lists byte by byte, so the rule
    # for folding is the protocol's: half of the log once it is more than twice
    # as long as the base set.
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
  """Wakes everybody who waits, without saying why.

  Waiters look at the state they care about, then wait, then look again. There
  is no lock: state and signal belong to one event loop, so nothing can change
  between the look and the wait as long as no `await` stands between them. A
  waiter costs one future, which goes away with the waiter.
  """

  def __init__(self):
    self._waiters: set[asyncio.Future[None]] = set()

  @property
  def num_waiters(self) -> int:
    """Returns the number of coroutines that wait now."""
    return len(self._waiters)

  async def wait(self) -> None:
    """Returns at the next `notify_all`."""
    waiter = asyncio.get_running_loop().create_future()
    self._waiters.add(waiter)
    try:
      await waiter
    finally:
      self._waiters.discard(waiter)

  def notify_all(self) -> None:
    """Wakes all present waiters; those who come later wait for the next."""
    for waiter in self._waiters:
      if not waiter.done():
        waiter.set_result(None)


class Published:
  """A published model and those who follow it.

  Attributes:
    model: as stored; replaced as a whole by an update, never edited in place.
    addresses: the log of data addresses that clients may call.
    changed: notified when `addresses` or the readiness of a replica changed.
    removed: whether it was unpublished.
    failures: loads that failed.
  """

  def __init__(self, model: admin_pb2.Model):
    self.model = model
    self.addresses = AddressLog()
    self.changed = Signal()
    self.removed = False
    self.failures = held_lib.Failures()
    self._wanted: tuple[admin_pb2.Model, assigner.Model] | None = None

  def wanted(self, may_retry: bool, by_chip: bool) -> assigner.Model:
    """What the assigner needs to know of it; see `capacity`."""
    # Kept, as all models are looked at with each change of one.
    if not (
      self._wanted
      and self._wanted[0] is self.model
      and self._wanted[1].may_retry == may_retry
    ):
      self._wanted = self.model, capacity.model(self.model, may_retry, by_chip)
    return self._wanted[1]

  def close(self) -> None:
    """Ends it: those who follow it learn that it is gone."""
    self.removed = True
    self.addresses.close()
    self.changed.notify_all()


@dataclasses.dataclass(frozen=True)
class Change:
  """What an edit does to one model: add it, replace it or remove it.

  Attributes:
    before: the model as it was, None if it is new.
    after: the model as it will be, None if it goes.
  """

  before: admin_pb2.Model | None
  after: admin_pb2.Model | None

  @property
  def model_id(self) -> str:
    model = self.after or self.before
    assert model is not None  # A change is of some model.
    return model.model_id


# Decides on a change, given the table as it will be when the change's turn
# comes. Raises SaxError to refuse.
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
      state: what `save` was given last.
      save: makes a state durable or raises; called in a thread, one call at a
        time.
      on_change: told of every change, right after it took effect.
    """
    self._entries = {m.model_id: Published(m) for m in state.models}
    self._save = save
    self._on_change = on_change
    self._waiting: list[tuple[Edit, asyncio.Future[None]]] = []
    self._writing: asyncio.Task[None] | None = None
    self._thread = futures.ThreadPoolExecutor(1, 'state-writer')

  def get(self, model_id: str) -> Published | None:
    """The model of that id, if it is published."""
    return self._entries.get(model_id)

  def __getitem__(self, model_id: str) -> Published:
    """The published model of that id; raises KeyError."""
    return self._entries[model_id]

  def entries(self) -> list[Published]:
    """All published models, oldest first."""
    return list(self._entries.values())

  async def apply(self, edit: Edit) -> None:
    """Makes a change; when this returns, the change is durable and in effect.

    A caller that is cancelled has made the change nevertheless.

    Raises:
      SaxError: from `edit`; nothing was changed.
      FailedPrecondition: the state cannot be written; nothing was changed.
      Unavailable: another admin server leads by now.
    """
    done = asyncio.get_running_loop().create_future()
    self._waiting.append((edit, done))
    if self._writing is None:
      self._writing = asyncio.create_task(self._write_all())
    await asyncio.shield(done)

  async def close(self) -> None:
    """Waits until changes under way are written."""
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
    accepted: list[tuple[Change, asyncio.Future[None]]] = []
    for edit, done in batch:
      try:
        change = edit(table)
      except Exception as e:  # pylint: disable=broad-exception-caught
        _fail(done, e)  # The caller's to handle, whatever it is.
        continue
      accepted.append((change, done))
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
      f'another admin server has become the leader ({error}); ask the one that'
      ' location.proto names'
    )
  return errors.FailedPrecondition(
    f'the state of the cell cannot be written ({error}); nothing was '
    'changed: see to the storage of fs_root, then try again'
  )


def _fail(done: asyncio.Future[None], error: Exception) -> None:
  if not done.done():
    done.set_exception(error)
    # Its caller may be gone; then nobody else needs to hear of the error.
    done.exception()
