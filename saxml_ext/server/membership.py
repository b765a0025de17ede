"""Keeps a model server joined to its cell.

Join is cheap, and repeating it changes nothing. It is sent every two seconds to
the address in location.proto. If another address appears there, it is sent at
once. It does not wait for the answer of the old admin server, which may have
been stopped. So an admin server that was replaced, or restarted at the same
address, knows this server again within two seconds.
"""

import asyncio

from absl import logging
import grpc

from saxml_ext.common import backoff
from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_INTERVAL = 2.0
# The number of times that location.proto is read in one interval.
_LOOKS = 2
# The timeout of the last message, because the process may have little time.
_LEAVE_TIMEOUT = 0.5
# An admin server calls back before it answers, with a timeout of 10 s.
_JOIN_TIMEOUT = 15.0


class Membership:
  """Joins one cell repeatedly."""

  def __init__(
    self,
    sax_root: str,
    sax_cell: str,
    request: admin_pb2.JoinRequest,
    interval: float = _INTERVAL,
  ):
    """Stores the arguments; `run` joins the cell.

    Args:
      sax_root: The directory where cells keep their files.
      sax_cell: The id of the cell to join.
      request: The description of this server.
      interval: The seconds between two joins.
    """
    self._sax_root = sax_root
    self._sax_cell = sax_cell
    self._request = request
    self._interval = interval
    self._address: str | None = None
    self._channel: grpc.aio.Channel | None = None
    self._say = backoff.LogOnce(logging.info)

  async def run(self) -> None:
    """Joins until it is cancelled, even if the admin server is replaced."""
    try:
      while True:
        await self._join_once()
        await self._until_due()
    finally:
      await self._disconnect()

  async def leave(self, reason: str) -> None:
    """Informs the admin server that this server is about to end.

    Upstream's admin servers do not support this message, but they detect the
    end.

    Args:
      reason: The reason, which the cell shows to users.
    """
    self._request.leaving = reason
    # A process that reports the end of another one has not read the address
    # yet.
    address = self._address or await self._locate()
    if not address:
      return
    channel = grpc_aio.channel(address)
    try:
      await admin_pb2_grpc.AdminStub(channel).Join(
        self._request, timeout=_LEAVE_TIMEOUT
      )
    except grpc.aio.AioRpcError as e:
      self._say(f'cannot leave {self._sax_cell}: {e.code().name}')
    finally:
      await channel.close()

  async def _locate(self) -> str:
    """Returns the address in location.proto, or '' if it cannot be read."""
    try:
      # A file on a network may be slow, so it is not read on the event loop.
      location = await asyncio.to_thread(
        cell.read_location, self._sax_root, self._sax_cell
      )
    except (errors.SaxError, OSError) as e:
      self._say(f'cannot join {self._sax_cell}: {e}')
      return ''
    return location.location

  async def _until_due(self) -> None:
    """Waits until it is time to join again."""
    for _ in range(_LOOKS):
      await asyncio.sleep(self._interval / _LOOKS)
      if await self._locate() not in ('', self._address):
        return

  async def _join_once(self) -> None:
    address = await self._locate()
    if not address:
      return
    await self._connect(address)
    stub = admin_pb2_grpc.AdminStub(self._channel)
    joining = asyncio.ensure_future(
      stub.Join(self._request, timeout=_JOIN_TIMEOUT)
    )
    try:
      while not joining.done():
        await asyncio.wait((joining,), timeout=self._interval / _LOOKS)
        if not joining.done() and await self._locate() not in ('', address):
          self._say(
            f'the admin server at {address} does not answer. location.proto'
            ' now names another one, which this server joins.'
          )
          return
      joining.result()
    except grpc.aio.AioRpcError as e:
      self._say(
        f'cannot join {self._sax_cell} at {self._address}: {e.code().name}:'
        f' {e.details()}; trying again'
      )
      await self._disconnect()
    else:
      self._say(
        f'joined {self._sax_cell} at {self._address} as {self._request.address}'
      )
    finally:
      joining.cancel()

  async def _connect(self, address: str) -> None:
    if self._channel is not None and address == self._address:
      return
    await self._disconnect()
    self._address = address
    self._channel = grpc_aio.channel(address)

  async def _disconnect(self) -> None:
    channel, self._channel = self._channel, None
    if channel is not None:
      await channel.close()
