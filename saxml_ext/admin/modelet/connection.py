"""The connection to one model server, and what it said of itself last."""

from collections.abc import Callable
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
