"""Calls a model server, and detects if it is dead.

A busy or stopped process does not answer calls, but the kernel of its machine
still accepts connections for it. So `probe` distinguishes three states.
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

# These are timeouts in seconds for the status of a known server and of one that
# joins.
STATUS_TIMEOUT = 10.0
JOIN_TIMEOUT = 10.0


class PortState(enum.Enum):
  """The result of a TCP connection."""

  TAKEN = 'taken'  # The process exists, and may answer calls.
  REFUSED = 'refused'  # The process has ended.
  NO_ANSWER = 'no answer'  # The machine is off or disconnected.


async def probe(address: str, timeout: float) -> PortState:
  """Connects to "host:port" and disconnects.

  Args:
    address: The address. The host may be an IPv6 address in brackets.
    timeout: The number of seconds to wait for an answer.

  Returns:
    The result of the connection.
  """
  host, _, port = address.rpartition(':')
  try:
    async with asyncio.timeout(timeout):
      _, writer = await asyncio.open_connection(host.strip('[]'), int(port))
  except ConnectionRefusedError:
    return PortState.REFUSED
  except (TimeoutError, OSError):
    return PortState.NO_ANSWER
  writer.close()
  return PortState.TAKEN


# These limits are in seconds. A killed server refuses connections at once. If
# it refuses them for this long, it is not just being restarted.
_REFUSED_LIMIT = 0.5
# The machine accepts no connections at all, and a call is not answered either.
_NO_ANSWER_LIMIT = 0.6
# A server that accepts connections but does not answer may be compiling, or its
# machine may be overloaded. Other admin servers wait as long.
_SILENT_LIMIT = 25.0
_LIMITS = {
  PortState.REFUSED: _REFUSED_LIMIT,
  PortState.NO_ANSWER: _NO_ANSWER_LIMIT,
  PortState.TAKEN: _SILENT_LIMIT,
}


class Liveness:
  """Decides if a server is dead, from the failed status calls."""

  def __init__(self):
    self._failures = 0
    self._since = 0.0
    self._state: PortState | None = None
    self._state_since = 0.0
    self._same = 0

  @property
  def failing(self) -> bool:
    """True if the last call failed."""
    return self._failures > 0

  def silent_for(self, now: float) -> float:
    """Returns the number of seconds since the first of the failed calls."""
    return now - self._since if self._failures else 0.0

  def succeeded(self) -> None:
    """Records that the server answered."""
    self._failures = 0
    self._state = None

  def failed(self, begin: float, now: float, state: PortState) -> bool:
    """Records that a call failed, or is not answered yet.

    Args:
      begin: The time of the call, in monotonic seconds.
      now: The time of the failure, in monotonic seconds.
      state: The result of a connection to the server.

    Returns:
      True if the server counts as dead. A single failure is never enough,
      because all deadlines pass at once if this process was stopped for a
      while.
    """
    if not self._failures:
      self._since = begin
    self._failures += 1
    # A new result is counted from its first time.
    if state is not self._state:
      self._state, self._state_since, self._same = state, now, 0
    self._same += 1
    if state is PortState.TAKEN:
      return self._failures > 1 and now - self._since >= _LIMITS[state]
    return self._same > 1 and now - self._state_since >= _LIMITS[state]


class Connection:
  """A connection for calls of sax.Modelet to one server.

  Attributes:
    address: The "host:port" of the server.
    stub: The stub for calls.
    status: The last response to `get_status`.
    last_seen: The time of that response, in monotonic seconds.
  """

  def __init__(self, address: str, wants_reasons: Callable[[], bool]):
    """Sends nothing before the first call.

    Args:
      address: The "host:port" of the server's Modelet service.
      wants_reasons: A function that returns True if a status must have the
        reasons of failures.
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

  async def open(
    self, timeout: float = JOIN_TIMEOUT
  ) -> modelet_pb2.GetStatusResponse:
    """Calls the server for the first time.

    Args:
      timeout: The number of seconds to wait for an answer.

    Returns:
      The status of the server.

    Raises:
      DeadlineExceeded: The server does not answer. Model servers join again
        after this code.
    """
    try:
      return await self.get_status(timeout, wait_for_ready=True)
    except grpc.aio.AioRpcError as e:
      raise errors.DeadlineExceeded(
        f'model server {self.address} does not answer GetStatus within'
        f' {timeout:g} s ({e.code().name}: {e.details()}). Join after'
        ' the server has started, with an address that the admin server can'
        ' reach'
      ) from e

  async def get_status(
    self, timeout: float = STATUS_TIMEOUT, wait_for_ready: bool = False
  ) -> modelet_pb2.GetStatusResponse:
    """Requests the status of the server; raises grpc.aio.AioRpcError."""
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
        # The next attempt uses the new certificate. The old channel stays open
        # for the calls in flight.
        self._retired.append(self._channel)
        self._connect()
      raise
    self.status, self.last_seen = status, time.monotonic()
    return status

  async def close(self) -> None:
    """Ends the calls in flight."""
    for channel in (*self._retired, self._channel):
      await channel.close()
