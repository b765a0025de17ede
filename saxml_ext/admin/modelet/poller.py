"""Asks a model server for its status all the time, and judges its life.

The poller notices that a server has died or come back. What its answers mean
for models is for others to say.
"""

import asyncio
from collections.abc import Callable
import time

import grpc

from saxml_ext.admin.modelet import connection as connection_lib
from saxml_ext.admin.modelet import port_check as reach_lib
from saxml_ext.protobuf import modelet_pb2

# Seconds. A killed server refuses connections at once; refusing them for this
# long, it is not just being restarted by a quick hand.
_REFUSED_LIMIT = 0.5
# A machine that takes no connections at all, while a call is not answered
# either.
_NO_ANSWER_LIMIT = 0.6
# A server that merely does not answer may be compiling, or its machine may be
# short of everything. Other admin servers wait as long.
_SILENT_LIMIT = 25.0
_LIMITS = {
  reach_lib.Reach.REFUSED: _REFUSED_LIMIT,
  reach_lib.Reach.NO_ANSWER: _NO_ANSWER_LIMIT,
  reach_lib.Reach.TAKEN: _SILENT_LIMIT,
}


class Liveness:
  """Judges a server by the status calls that failed since the last good one."""

  def __init__(self):
    self._failures = 0
    self._since = 0.0
    self._reach: reach_lib.Reach | None = None
    self._reach_since = 0.0
    self._same = 0

  @property
  def failing(self) -> bool:
    """Returns True if the last call failed."""
    return self._failures > 0

  def silent_for(self, now: float) -> float:
    """Seconds since the first of the failed calls was made."""
    return now - self._since if self._failures else 0.0

  def succeeded(self) -> None:
    """The server answered."""
    self._failures = 0
    self._reach = None

  def failed(self, asked: float, now: float, reach: reach_lib.Reach) -> bool:
    """A call failed, or is not answered yet.

    Args:
      asked: when it was made, monotonic seconds.
      now: when it failed.
      reach: whether the server can be reached at all.

    Returns:
      Whether the server is to be taken for dead. A single failure is never
      enough: when this process was stopped for a while, every deadline has
      passed at once.
    """
    if not self._failures:
      self._since = asked
    self._failures += 1
    # What followed on something else is counted from its first time.
    if reach is not self._reach:
      self._reach, self._reach_since, self._same = reach, now, 0
    self._same += 1
    if reach is reach_lib.Reach.TAKEN:
      return self._failures > 1 and now - self._since >= _LIMITS[reach]
    return self._same > 1 and now - self._reach_since >= _LIMITS[reach]


# All in seconds. With the limits of `_LIMITS`, a killed server is found dead
# after at most 1.5 s, a machine that was switched off after 2 s: from then on
# clients must not be sent there.
_POLL = 0.5
_POLL_FAILING = 0.2
# A call that is not answered by now makes us look whether anybody is there.
_QUIET = 0.3
_PROBE_TIMEOUT = 0.3
# A model server joins again after 15 minutes at the latest; until then a lost
# one is worth polling.
_KEEP_LOST = 16 * 60.0


class _Dead(Exception):
  """A server is not there any more."""


class Poller:
  """Polls one server for as long as it is known.

  Attributes:
    lost: whether the server is dead as far as can be seen.
  """

  def __init__(
    self,
    connection: connection_lib.Connection,
    answered: Callable[[modelet_pb2.GetStatusResponse, float], None],
    regained: Callable[[modelet_pb2.GetStatusResponse], None],
    lost: Callable[[str], None],
    forgotten: Callable[[], None],
  ):
    """Does nothing before `start`.

    Args:
      connection: to the model server.
      answered: called with each status of a living server, and the monotonic
        time at which it was asked for.
      regained: called with the first status of a server that was lost.
      lost: called with the reason when the server is taken for dead.
      forgotten: called when a lost server stayed away for so long that it is
        not worth polling any more.
    """
    self.lost = False
    self._connection = connection
    self._answered = answered
    self._regained = regained
    self._on_lost = lost
    self._forgotten = forgotten
    self._live = Liveness()
    self._poke = asyncio.Event()
    self._task: asyncio.Task[None] | None = None

  def start(self) -> None:
    """Begins to poll."""
    self._task = asyncio.create_task(self._run())

  async def close(self) -> None:
    """Stops."""
    if self._task:
      self._task.cancel()
      await asyncio.gather(self._task, return_exceptions=True)

  def leave(self, reason: str) -> None:
    """The server says that it is about to end: it is lost from now on.

    It is not asked again, for it may answer until it has ended; it joins when
    it is back.

    Args:
      reason: as it told.
    """
    if self._task:
      self._task.cancel()
    self._task = asyncio.create_task(self._wait_out())
    self._lose(reason)

  def poll_now(self) -> None:
    """Asks for the status at once; there may be news."""
    self._poke.set()

  async def _run(self) -> None:
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
          self.lost = False
          self._regained(status)
        else:
          self._answered(status, asked)

  async def _wait_out(self) -> None:
    await asyncio.sleep(_KEEP_LOST)
    self._forgotten()

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
    reach = await reach_lib.probe(self._connection.address, _PROBE_TIMEOUT)
    now = time.monotonic()
    dead = self._live.failed(asked, now, reach)
    if self.lost:
      if self._live.silent_for(now) > _KEEP_LOST:
        self._forgotten()
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
        reach = await reach_lib.probe(self._connection.address, _PROBE_TIMEOUT)
        if reach is reach_lib.Reach.TAKEN or call.done():
          continue
        if self._live.failed(asked, time.monotonic(), reach):
          raise _Dead(
            f'{self._connection.address} takes no connections: {reach.value}'
          )
    finally:
      call.cancel()

  def _lose(self, reason: str) -> None:
    self.lost = True
    self._on_lost(reason)
