"""Implements a transport that occupies no thread while it waits.

A coroutine over it runs in its caller's thread until it has to wait. It then
continues in the thread that ended the wait: gRPC's or the timer's. Thousands of
requests can be in flight in this way.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent import futures
import contextvars
import dataclasses
import functools
import threading
import time
from typing import Any, Generic, TypeVar

import grpc

from saxml_ext.client.transport import blocking
from saxml_ext.common.telemetry import tracing


class Timer:
  """A timer that calls functions at their due times. Thread-safe.

  The functions run one after another, so they must be short. Their exceptions
  are logged.
  """

  def __init__(self):
    self._lock = threading.Lock()
    self._loop: asyncio.AbstractEventLoop | None = None

  def call_after(self, delay: float, function: Callable[[], object]) -> None:
    """Calls `function` after `delay` seconds."""
    due = time.monotonic() + delay  # Event loops use the same clock.
    with self._lock:
      if self._loop is None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(
          target=self._loop.run_forever, name='timer', daemon=True
        ).start()
    self._loop.call_soon_threadsafe(self._loop.call_at, due, function)


_timer = Timer()


_T = TypeVar('_T')
_Function = Callable[[], object]


@dataclasses.dataclass
class _Wait:
  """An awaitable that suspends a coroutine until a function is called.

  Attributes:
    subscribe: The function that receives a callback. Calling the callback
      resumes the coroutine.
    cancel: The function that ends the wait early, if possible. Any thread may
      call it.
  """

  subscribe: Callable[[_Function], object]
  cancel: _Function | None = None

  def __await__(self) -> Generator['_Wait', None, None]:
    yield self


def _once(function: _Function) -> Callable[[], None]:
  """Returns a function that calls another one only on its first call."""
  lock = threading.Lock()  # The lock is never released.

  def call() -> None:
    if lock.acquire(blocking=False):
      function()

  return call


class Callbacks(blocking.Transport):
  """The transport for requests that `start` runs.

  It shares the connections of the blocking transport. Reading files and
  streaming block as they do there.
  """

  def __init__(self):
    super().__init__()
    self.connections = blocking.TRANSPORT.connections
    self.admin_clients = blocking.TRANSPORT.admin_clients

  async def sleep(self, seconds: float) -> None:
    await _Wait(functools.partial(_timer.call_after, seconds))

  async def send(self, rpc: Any, request: Any, timeout: float | None) -> Any:
    call = rpc.future(request, timeout=timeout, metadata=tracing.OUTGOING.get())
    await _Wait(
      lambda resume: call.add_done_callback(lambda _: resume()), call.cancel
    )
    try:
      return call.result()
    except grpc.FutureCancelledError:
      raise call from None  # A gRPC call is also its own error.

  async def addresses(
    self, watcher: blocking.Watcher, timeout: float | None
  ) -> frozenset[str]:
    if not watcher.count():

      def subscribe(resume: _Function) -> None:
        once = _once(resume)
        if timeout is not None:
          _timer.call_after(timeout, once)
        watcher.call_when_known(once)

      await _Wait(subscribe)
    return watcher.addresses(0.0)


TRANSPORT = Callbacks()


def transport() -> Callbacks:
  """Returns the only `Callbacks` transport of this process."""
  return TRANSPORT


class _Task(Generic[_T]):
  """A running coroutine and the future of its result."""

  def __init__(self, steps: Coroutine[_Wait, None, _T]):
    self.future: futures.Future[_T] = futures.Future()
    self._steps = steps
    # Every step runs in the context of the caller, whichever thread runs it.
    self._context = contextvars.copy_context()
    self._lock = threading.Lock()
    self._cancel_wait: _Function | None = None
    self.future.add_done_callback(self._on_future_done)

  def run(self) -> None:
    """Runs the coroutine until it has to wait or ends."""
    if self.future.done():  # It was cancelled.
      self._context.run(self._steps.close)
      return
    try:
      wait = self._context.run(self._steps.send, None)
    except StopIteration as e:
      self._finish(functools.partial(self.future.set_result, e.value))
    except Exception as e:  # pylint: disable=broad-exception-caught
      # Every error is passed on, because a caller waits for the future.
      self._finish(functools.partial(self.future.set_exception, e))
    else:
      with self._lock:
        self._cancel_wait = wait.cancel
      # After this call, another thread may run this method.
      wait.subscribe(self.run)
      # It was cancelled after the check above.
      if self.future.cancelled() and wait.cancel:
        wait.cancel()

  def _finish(self, fill: _Function) -> None:
    try:
      fill()
    except futures.InvalidStateError:
      pass  # It was just cancelled, so nobody waits for the answer.

  def _on_future_done(self, future: futures.Future[_T]) -> None:
    if future.cancelled():
      with self._lock:
        cancel_wait = self._cancel_wait
      if cancel_wait:
        cancel_wait()


def start(steps: Coroutine[Any, None, _T]) -> futures.Future[_T]:
  """Runs a coroutine over this transport without waiting for its end.

  Returns:
    A future of its result or exception. Cancelling the future cancels the
    request that the coroutine waits for.
  """
  task = _Task(steps)
  task.run()
  return task.future
