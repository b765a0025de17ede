"""Keeps a model server joined to its cell.

Join is cheap and repeating it changes nothing, so it is sent every two
seconds to whatever address location.proto names at that time. So an admin
server that was replaced, or restarted at the same address, knows this server
again within that time.
"""

import asyncio

from absl import logging
import grpc

from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_INTERVAL = 2.0
# An admin server calls back before it answers, and allows 10 s for that.
_JOIN_TIMEOUT = 15.0


class Membership:
  """Joins one cell again and again."""

  def __init__(
      self,
      sax_root: str,
      sax_cell: str,
      request: admin_pb2.JoinRequest,
      interval: float = _INTERVAL,
  ):
    """Prepares; `run` begins.

    Args:
      sax_root: where cells keep their files.
      sax_cell: id of the cell to join.
      request: what this server tells of itself.
      interval: seconds between two joins.
    """
    self._sax_root = sax_root
    self._sax_cell = sax_cell
    self._request = request
    self._interval = interval
    self._address: str | None = None
    self._channel: grpc.aio.Channel | None = None
    self._said = ''

  async def run(self) -> None:
    """Joins until it is cancelled; the admin server may come and go."""
    try:
      while True:
        await self._join_once()
        await asyncio.sleep(self._interval)
    finally:
      await self._disconnect()

  async def _join_once(self) -> None:
    try:
      # A file on a network may answer slowly: not on the event loop.
      location = await asyncio.to_thread(
          cell.read_location, self._sax_root, self._sax_cell
      )
      await self._connect(location.location)
      stub = admin_pb2_grpc.AdminStub(self._channel)
      await stub.Join(self._request, timeout=_JOIN_TIMEOUT)
    except (errors.SaxError, OSError) as e:
      self._say(f'cannot join {self._sax_cell}: {e}')
    except grpc.aio.AioRpcError as e:
      self._say(
          f'cannot join {self._sax_cell} at {self._address}: {e.code().name}:'
          f' {e.details()}; trying again'
      )
      await self._disconnect()
    else:
      self._say(
          f'joined {self._sax_cell} at {self._address} as'
          f' {self._request.address}'
      )

  async def _connect(self, address: str) -> None:
    if self._channel is not None and address == self._address:
      return
    await self._disconnect()
    self._address = address
    self._channel = grpc_aio.insecure_channel(address)

  async def _disconnect(self) -> None:
    channel, self._channel = self._channel, None
    if channel is not None:
      await channel.close()

  def _say(self, text: str) -> None:
    """Logs what is new; most rounds are as the one before."""
    if text != self._said:
      logging.info(text)
      self._said = text
