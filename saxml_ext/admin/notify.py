"""A wake-up call for coroutines of one event loop."""

import asyncio


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
    """How many coroutines wait now."""
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
