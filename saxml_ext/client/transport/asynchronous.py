"""Implements the transport of an asyncio event loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

import grpc

from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import blocking
from saxml_ext.common import grpc_util
from saxml_ext.common.telemetry import tracing

_T = TypeVar('_T')


class Asynchronous(blocking.Transport):
  """A transport for the coroutines of one event loop."""

  def __init__(self):
    """Creates the transport; must be called on the event loop."""
    super().__init__()
    self._loop = asyncio.get_running_loop()

  def channel(self, address: str) -> grpc.aio.Channel:
    return grpc_util.aio_channel(address)

  def probe(self, address: str) -> None:
    probe = super().probe
    self._call_soon(lambda: probe(address))

  def lock(self) -> asyncio.Lock:
    return asyncio.Lock()

  async def sleep(self, seconds: float) -> None:
    await asyncio.sleep(seconds)

  async def read(self, function: Callable[..., _T], *args) -> _T:
    return await asyncio.to_thread(function, *args)

  async def send(self, rpc: Any, request: Any, timeout: float | None) -> Any:
    # Cancelling the awaiting task cancels the call.
    return await rpc(request, timeout=timeout, metadata=tracing.OUTGOING.get())

  async def stream(
    self, rpc: Any, request: Any, timeout: float | None
  ) -> AsyncGenerator[Any, None]:
    call = rpc(request, timeout=timeout, metadata=tracing.OUTGOING.get())
    try:
      async for response in call:
        yield response
    finally:
      call.cancel()

  async def addresses(
    self, watcher: blocking.Watcher, timeout: float | None
  ) -> frozenset[str]:
    if not watcher.count():
      known = asyncio.Event()
      watcher.call_when_known(lambda: self._call_soon(known.set))
      try:
        await asyncio.wait_for(known.wait(), timeout)
      except TimeoutError:
        pass  # `addresses` raises the reason below.
    return watcher.addresses(0.0)

  def _call_soon(self, function: Callable[[], object]) -> None:
    """Calls a function on the loop, from any thread."""
    try:
      self._loop.call_soon_threadsafe(function)
    except RuntimeError:
      if not self._loop.is_closed():
        raise
      # No task waits any more: the loop ended while the watcher's thread ran.


_by_loop: dict[asyncio.AbstractEventLoop, Asynchronous] = {}


def transport() -> Asynchronous:
  """Returns the transport of the running loop; loops share no connections."""
  loop = asyncio.get_running_loop()
  if loop not in _by_loop:
    for other in list(_by_loop):
      if other.is_closed():
        _by_loop.pop(other, None)
    _by_loop[loop] = Asynchronous()
    address_watcher.tell(_by_loop[loop])
  return _by_loop[loop]
