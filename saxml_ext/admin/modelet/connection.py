"""Calls a model server, and judges whether it is alive.

A process that is busy, or stopped, does not answer calls, but the kernel of its
machine still takes connections for it. So `probe` tells three states apart.
"""

import asyncio
from collections.abc import Callable
import enum
import time

import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common.security import tls
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

# Seconds. How long a status may take, of a server that is known and of one
# that joins.
STATUS_TIMEOUT = 10.0
_JOIN_TIMEOUT = 10.0


class Reach(enum.Enum):
  """What became of a TCP connection."""

  TAKEN = 'taken'  # The process is there, whether or not it answers calls.
  REFUSED = 'refused'  # Nobody listens: it has ended.
  NO_ANSWER = 'no answer'  # The machine is off, or cut off.


async def probe(address: str, timeout: float) -> Reach:
  """Connects to "host:port" and hangs up.

  Args:
    address: the host may be an IPv6 address in brackets.
    timeout: seconds without an answer that count as none.

  Returns:
    What became of it.
  """
  host, _, port = address.rpartition(':')
  try:
    async with asyncio.timeout(timeout):
      _, writer = await asyncio.open_connection(host.strip('[]'), int(port))
  except ConnectionRefusedError:
    return Reach.REFUSED
  except (TimeoutError, OSError):
    return Reach.NO_ANSWER
  writer.close()
  return Reach.TAKEN


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
  Reach.REFUSED: _REFUSED_LIMIT,
  Reach.NO_ANSWER: _NO_ANSWER_LIMIT,
  Reach.TAKEN: _SILENT_LIMIT,
}


class Liveness:
  """Judges a server by the status calls that failed since the last good one."""

  def __init__(self):
    self._failures = 0
    self._since = 0.0
    self._reach: Reach | None = None
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

  def failed(self, asked: float, now: float, reach: Reach) -> bool:
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
    if reach is Reach.TAKEN:
      return self._failures > 1 and now - self._since >= _LIMITS[reach]
    return self._same > 1 and now - self._reach_since >= _LIMITS[reach]


class Connection:
  """Calls of sax.Modelet on one server.

  Attributes:
    address: "host:port" of the server.
    stub: for calls.
    status: its last answer to `get_status`.
    last_seen: when that came, monotonic seconds.
  """

  def __init__(self, address: str, wants_reasons: Callable[[], bool]):
    """Nothing is sent before the first call.

    Args:
      address: "host:port" of the server's Modelet service.
      wants_reasons: whether a status is to say why models failed.
    """
    self.address = address
    self.status = modelet_pb2.GetStatusResponse()
    self.last_seen = time.monotonic()
    self._wants_reasons = wants_reasons
    self._retired: list[grpc.aio.Channel] = []
    self._connect()

  def _connect(self) -> None:
    self._tls = tls.version()
    self._channel = grpc_aio.channel(self.address)
    self.stub = modelet_pb2_grpc.ModeletStub(self._channel)

  async def open(self) -> modelet_pb2.GetStatusResponse:
    """Makes the first contact.

    Returns:
      What the server says of itself.

    Raises:
      DeadlineExceeded: it does not answer; model servers know this code as a
        reason to join again.
    """
    try:
      return await self.get_status(_JOIN_TIMEOUT, wait_for_ready=True)
    except grpc.aio.AioRpcError as e:
      raise errors.DeadlineExceeded(
        f'model server {self.address} does not answer GetStatus within '
        f'{_JOIN_TIMEOUT:g} s ({e.code().name}: {e.details()}): join when it '
        'serves, with an address that the admin server can reach'
      ) from e

  async def get_status(
    self, timeout: float = STATUS_TIMEOUT, wait_for_ready: bool = False
  ) -> modelet_pb2.GetStatusResponse:
    """Asks the server for its status; raises grpc.aio.AioRpcError."""
    try:
      status = await self.stub.GetStatus(
        modelet_pb2.GetStatusRequest(
          include_method_stats=True,
          include_failure_reasons=self._wants_reasons(),
        ),
        timeout=timeout,
        wait_for_ready=wait_for_ready,
      )
    except grpc.aio.AioRpcError:
      if tls.version() is not self._tls:
        # The next try shows the new certificate; calls under way, if there
        # are any, end as they would have.
        self._retired.append(self._channel)
        self._connect()
      raise
    self.status, self.last_seen = status, time.monotonic()
    return status

  async def close(self) -> None:
    """Ends calls that are under way."""
    for channel in (*self._retired, self._channel):
      await channel.close()
