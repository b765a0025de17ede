"""Which admin server of a cell leads: lease, standby, takeover.

All admin servers of a cell are started alike. One holds the newest claim of
the shared directory and changes its text every `beat` seconds. The others
watch it, each by its own monotonic clock: if it stays the same for `timeout`,
or its process is known to be gone, they try to claim the next epoch.

The leader counts as such only for a part of `timeout` after the start of its
last successful beat. A standby starts to count when it sees that beat, which
is later; so at no time there are two that count as leaders, as long as their
clocks run equally fast to within a tenth. No wall clock is read.

A leader whose storage fails may go on to answer questions, for nobody can take
over through the same storage; but it does not act, and nothing it could write
would count. If it alone is cut off, those who still ask it hear what it sees of
the model servers, until they look into location.proto again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent import futures
import dataclasses
import time
from typing import TypeVar

from absl import logging

from saxml_ext.admin.leadership import shared_dir
from saxml_ext.common import backoff
from saxml_ext.common import errors

_T = TypeVar('_T')
# Storage that fails is tried again after this, in seconds.
_PAUSE = 0.3
# Who steps down waits no longer for storage that hangs.
_RESIGN_SECS = 2.0


@dataclasses.dataclass(frozen=True)
class Timing:
  """Seconds.

  Attributes:
    beat: between two signs of life of the leader.
    timeout: without a sign of life, until a standby takes over.
    poll: between two looks of a standby.
  """

  beat: float
  timeout: float
  poll: float

  @property
  def validity(self) -> float:
    """How long the leader may rely on a beat."""
    return 0.9 * self.timeout


# Takeover takes `timeout` + `poll` at most, and what reading the state takes:
# less than 3 s. Google Cloud Storage allows one write per second and object.
LOCAL = Timing(beat=0.4, timeout=2.0, poll=0.15)
BUCKET = Timing(beat=1.05, timeout=2.3, poll=0.25)

# How storage fails.
_FAILURES = (OSError, errors.SaxError)


def timing_of(directory: shared_dir.SharedDir) -> Timing:
  """What suits the storage of a cell."""
  return BUCKET if isinstance(directory, shared_dir.BucketDir) else LOCAL


class Election:
  """One admin server's part in the choice of a leader.

  Attributes:
    epoch: the claim it holds; 0 as a standby.
    leader: text of the newest claim, the leader's address.
  """

  def __init__(
    self,
    directory: shared_dir.SharedDir,
    address: str,
    timing: Timing,
    lead: Callable[[int], Awaitable[None]],
    depose: Callable[[], Awaitable[None]],
  ):
    """Takes part only once it runs.

    Args:
      directory: shared by the admin servers of the cell.
      address: of this one, for others to see.
      timing: equal for all of them.
      lead: begins to lead with that epoch; raises Aborted if a newer leader
        was there first, DataLoss if it cannot lead, which ends the election
        for this server, another SaxError or OSError if the storage fails (it
        is called again then).
      depose: undoes `lead`, also a `lead` that failed.
    """
    self.epoch = 0
    self.leader = ''
    self._dir = directory
    self._address = address
    self._timing = timing
    self._lead = lead
    self._depose = depose
    self._valid_until = 0.0
    self._cut_off = False
    self._former = 0
    self._beats = 0
    self._resigned: str | None = None
    self._say = backoff.LogOnce(logging.error)
    self._thread = futures.ThreadPoolExecutor(1, 'election')

  def is_valid(self) -> bool:
    """Whether this server leads, beyond doubt."""
    return self.epoch > 0 and time.monotonic() < self._valid_until

  def may_answer(self) -> bool:
    """Whether this server may answer questions about the cell."""
    return self.is_valid() or (self.epoch > 0 and self._cut_off)

  def resign(self, reason: str) -> None:
    """Steps down soon; may lead again, with what is in the storage then."""
    self._resigned = reason

  async def run(self) -> None:
    """Waits, leads, waits again ..., until cancelled; then resigns."""
    try:
      while True:
        await self._win()
        beating = asyncio.create_task(self._beat_on())
        leading = asyncio.create_task(self._lead_on())
        try:
          await asyncio.wait(
            (beating, leading), return_when=asyncio.FIRST_COMPLETED
          )
          reason = (beating if beating.done() else leading).result()
          logging.warning('steps down: %s', reason)
        finally:
          await self._step_down(beating, leading)
    finally:
      self._thread.shutdown(wait=False)
      self._dir.close()

  async def _step_down(self, *tasks: asyncio.Task) -> None:
    for task in tasks:
      task.cancel()
    epoch, self.epoch = self.epoch, 0
    await asyncio.gather(*tasks, return_exceptions=True)
    await self._depose()
    try:
      async with asyncio.timeout(_RESIGN_SECS):
        await self._in_thread(self._dir.resign, epoch)
    except errors.Aborted:
      pass  # Another one leads already.
    except _FAILURES as e:
      # The others find out by themselves, a little later.
      self._say(
        f'cannot give the claim of epoch {epoch} up: {e}; the next leader'
        f' waits for {self._timing.timeout:g} s'
      )

  async def _win(self) -> None:
    """Returns once an epoch is claimed."""
    seen, since = None, 0.0
    while True:
      # Before the look: this process may be stopped at any time.
      asked = time.monotonic()
      try:
        found = await self._in_thread(self._dir.newest)
        self.leader = '' if found.abandoned else found.text.split(' ')[0]
        if found != seen:
          seen, since = found, time.monotonic()
        # Nobody else can have renewed the last claim of this process.
        gone = found.abandoned or found.epoch == self._former
        if gone or asked - since >= self._timing.timeout:
          if await self._claim(found.epoch + 1):
            return
        self._say('')
      except _FAILURES as e:
        self._say(f'cannot take part in the election: {e}; trying again')
      await asyncio.sleep(self._timing.poll)

  async def _claim(self, epoch: int) -> bool:
    asked = time.monotonic()
    if not await self._in_thread(self._dir.claim, epoch, self._text()):
      return False
    self._resigned, self._cut_off = None, False
    self.epoch, self.leader = epoch, self._address
    self._former = epoch
    self._valid_until = asked + self._timing.validity
    logging.info('leads from now on, epoch %d', epoch)
    return True

  async def _beat_on(self) -> str:
    """Keeps the claim; returns why that is over."""
    while self._resigned is None:
      asked = time.monotonic()
      try:
        newest = await self._in_thread(self._beat)
        if newest != self.epoch:
          return f'epoch {newest} has begun'
        self._valid_until = asked + self._timing.validity
        self._cut_off = False
      except errors.Aborted as e:
        return e.message
      except _FAILURES as e:
        self._cut_off = True
        self._say(f'cannot read who leads: {e}; trying again')
      await asyncio.sleep(self._timing.beat)
    return self._resigned

  def _beat(self) -> int:
    """Gives a sign of life; returns the newest epoch after that."""
    try:
      self._dir.renew(self.epoch, self._text())
      self._say('')
    except errors.Aborted:
      raise
    except _FAILURES as e:
      # Where nothing can be written, nobody else can claim either; what can be
      # read tells whether that is so.
      self._cut_off = True
      self._say(
        f'the claim of this leader cannot be renewed: {e}; trying again'
      )
    return self._dir.newest_epoch()

  async def _lead_on(self) -> str:
    """Takes over, then waits; returns why that did not work."""
    while True:
      try:
        await self._lead(self.epoch)
      except errors.Aborted as e:
        return e.message
      except errors.DataLoss:
        raise  # Trying again does not help; the program ends with it.
      except _FAILURES as e:
        self._say(f'cannot take over: {e}; trying again')
        await self._depose()
        await asyncio.sleep(_PAUSE)
      else:
        await asyncio.Event().wait()

  def _text(self) -> str:
    self._beats += 1
    return f'{self._address} {self._beats}'

  async def _in_thread(self, function: Callable[..., _T], *args) -> _T:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(self._thread, function, *args)
