"""Elects the leader of a cell's admin servers, with a lease and standbys.

All admin servers of a cell are started with the same flags. One holds the
newest claim of the shared directory, and changes its text every `beat` seconds.
The others watch the claim with their own monotonic clocks. They try to claim
the next epoch if the text stays the same for `timeout`, or if the claim's
process has ended.

A leader is valid only for a part of `timeout` after the start of its last
successful beat. A standby starts its own timeout when it sees that beat, which
is later. So two leaders are never valid at the same time, if the speeds of
their clocks differ by less than a tenth. No wall clock is read.

A leader whose storage fails may still answer questions, because no other server
can take over through the same storage. It does not act, and its writes would
not count. If only this leader is cut off, its clients see its own view of the
model servers until they read location.proto again.
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
# The pause before a retry when the storage fails, in seconds.
_PAUSE = 0.3
# A server that steps down waits this long for storage that hangs.
_RESIGN_SECS = 2.0


@dataclasses.dataclass(frozen=True)
class Timing:
  """The intervals of the election, in seconds.

  Attributes:
    beat: The interval between two beats of the leader.
    timeout: The time without a beat after which a standby takes over.
    poll: The interval between two checks of a standby.
  """

  beat: float
  timeout: float
  poll: float

  @property
  def validity(self) -> float:
    """The time for which the leader may rely on a beat, in seconds."""
    return 0.9 * self.timeout


# A takeover takes at most `timeout` + `poll` and the time to read the state:
# less than 3 s. Google Cloud Storage allows one write per second and object.
LOCAL = Timing(beat=0.4, timeout=2.0, poll=0.15)
BUCKET = Timing(beat=1.05, timeout=2.3, poll=0.25)

# Failing storage raises these errors.
_FAILURES = (OSError, errors.SaxError)


def timing_of(directory: shared_dir.SharedDir) -> Timing:
  """Returns the intervals for the kind of storage of a cell."""
  return BUCKET if isinstance(directory, shared_dir.BucketDir) else LOCAL


class Election:
  """The election as one admin server takes part in it.

  Attributes:
    epoch: The epoch of its claim; 0 as a standby.
    leader: The leader's address, from the text of the newest claim.
  """

  def __init__(
    self,
    directory: shared_dir.SharedDir,
    address: str,
    timing: Timing,
    lead: Callable[[int], Awaitable[None]],
    depose: Callable[[], Awaitable[None]],
  ):
    """Does nothing before `run`.

    Args:
      directory: The directory that the admin servers of the cell share.
      address: The address of this server, for the others to read.
      timing: The intervals, which all servers must share.
      lead: A function that starts to lead with an epoch. It raises Aborted if a
        newer leader was there first, and DataLoss if it cannot lead, which ends
        the election for this server. If it raises another SaxError or OSError,
        the storage failed, and it is called again.
      depose: A function that undoes `lead`, even a `lead` that failed.
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
    """Returns True if this server certainly leads."""
    return self.epoch > 0 and time.monotonic() < self._valid_until

  def may_answer(self) -> bool:
    """Returns True if this server may answer questions about the cell."""
    return self.is_valid() or (self.epoch > 0 and self._cut_off)

  def resign(self, reason: str) -> None:
    """Makes this server step down soon.

    It may lead again, with the newest contents of the storage.
    """
    self._resigned = reason

  async def run(self) -> None:
    """Waits for the lead and leads, again and again, until it is cancelled.

    Then it resigns.
    """
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
          logging.warning('this server stops leading: %s', reason)
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
      pass  # Another server already leads.
    except _FAILURES as e:
      # The other servers notice it by themselves, a little later.
      self._say(
        f'the claim of epoch {epoch} cannot be released: {e}. The next leader'
        f' starts after {self._timing.timeout:g} s'
      )

  async def _win(self) -> None:
    """Waits until this server has claimed an epoch."""
    seen, since = None, 0.0
    while True:
      # The time is taken before the read, because this process may be stopped
      # at any time.
      now = time.monotonic()
      try:
        newest = await self._in_thread(self._dir.newest)
        self.leader = '' if newest.abandoned else newest.text.split(' ')[0]
        if newest != seen:
          seen, since = newest, time.monotonic()
        # No other process can have renewed the last claim of this process.
        vacant = newest.abandoned or newest.epoch == self._former
        if vacant or now - since >= self._timing.timeout:
          if await self._claim(newest.epoch + 1):
            return
        self._say('')
      except _FAILURES as e:
        self._say(f'cannot take part in the election: {e}. Trying again')
      await asyncio.sleep(self._timing.poll)

  async def _claim(self, epoch: int) -> bool:
    begin = time.monotonic()
    if not await self._in_thread(self._dir.claim, epoch, self._text()):
      return False
    self._resigned, self._cut_off = None, False
    self.epoch, self.leader = epoch, self._address
    self._former = epoch
    self._valid_until = begin + self._timing.validity
    logging.info('this server leads from now on, in epoch %d', epoch)
    return True

  async def _beat_on(self) -> str:
    """Renews the claim until it ends, and returns the reason."""
    while self._resigned is None:
      begin = time.monotonic()
      try:
        newest = await self._in_thread(self._beat)
        if newest != self.epoch:
          return f'epoch {newest} has begun'
        self._valid_until = begin + self._timing.validity
        self._cut_off = False
      except errors.Aborted as e:
        return e.message
      except _FAILURES as e:
        self._cut_off = True
        self._say(f'the current leader cannot be read: {e}. Trying again')
      await asyncio.sleep(self._timing.beat)
    return self._resigned

  def _beat(self) -> int:
    """Renews the claim, and returns the newest epoch after that."""
    try:
      self._dir.renew(self.epoch, self._text())
      self._say('')
    except errors.Aborted:
      raise
    except _FAILURES as e:
      # If no write is possible, no other server can make a claim either. The
      # read below checks that.
      self._cut_off = True
      self._say(
        f'the claim of this leader cannot be renewed: {e}. Trying again'
      )
    return self._dir.newest_epoch()

  async def _lead_on(self) -> str:
    """Takes over and then waits, or returns the reason why it cannot lead."""
    while True:
      try:
        await self._lead(self.epoch)
      except errors.Aborted as e:
        return e.message
      except errors.DataLoss:
        raise  # A retry cannot help, so the program ends.
      except _FAILURES as e:
        self._say(f'this server cannot take over: {e}. Trying again')
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
