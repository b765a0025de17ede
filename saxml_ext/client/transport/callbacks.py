"""The transport that occupies no thread while it waits.

A coroutine over it runs in its caller's thread until it has to wait, then goes
on wherever that wait ended: in gRPC's thread or in the timer's. Thousands of
requests can be in flight that way.
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
  """Functions due at some time. Thread-safe.

  They run one after another, so they must be short. What they raise is logged.
  """

  def __init__(self):
    self._lock = threading.Lock()
    self._loop: asyncio.AbstractEventLoop | None = None

  def call_after(self, delay: float, function: Callable[[], object]) -> None:
    """Calls `function` in `delay` seconds."""
    due = time.monotonic() + delay  # The clock of event loops.
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
  """Suspends a coroutine until a function is called.

  Attributes:
    subscribe: Gets that function, which goes on with the coroutine.
    cancel: Ends the wait early, if that is possible; any thread may call it.
  """

  subscribe: Callable[[_Function], object]
  cancel: _Function | None = None

  def __await__(self) -> Generator['_Wait', None, None]:
    yield self


def _once(function: _Function) -> Callable[[], None]:
  """Returns a function that runs another one on the first of its calls."""
  lock = threading.Lock()  # Never released.

  def call() -> None:
    if lock.acquire(blocking=False):
      function()

  return call


class Callbacks(blocking.Transport):
  """A transport for requests that `start` runs.

  It shares the blocking transport's connections. Reading files and streaming
  block here as they do there.
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
      raise call from None  # A call is the error that it ended with.

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
  """Returns this process's only one."""
  return TRANSPORT


class _Task(Generic[_T]):
  """A coroutine on its way, and the future of its result."""

  def __init__(self, steps: Coroutine[_Wait, None, _T]):
    self.future: futures.Future[_T] = futures.Future()
    self._steps = steps
    # Of the caller, whichever thread goes on with the coroutine.
    self._context = contextvars.copy_context()
    self._lock = threading.Lock()
    self._cancel_wait: _Function | None = None
    self.future.add_done_callback(self._on_future_done)

  def run(self) -> None:
    """Goes on until the coroutine has to wait, or is done."""
    if self.future.done():  # It was cancelled.
      self._context.run(self._steps.close)
      return
    try:
      wait = self._context.run(self._steps.send, None)
    except StopIteration as e:
      self._finish(functools.partial(self.future.set_result, e.value))
    except Exception as e:  # pylint: disable=broad-exception-caught
      # Whatever it is, somebody waits for it.
      self._finish(functools.partial(self.future.set_exception, e))
    else:
      with self._lock:
        self._cancel_wait = wait.cancel
      # From here on, another thread may be in this method.
      wait.subscribe(self.run)
      if self.future.cancelled() and wait.cancel:  # Since the check above.
        wait.cancel()

  def _finish(self, fill: _Function) -> None:
    try:
      fill()
    except futures.InvalidStateError:
      pass  # Cancelled a moment ago: nobody waits for the answer.

  def _on_future_done(self, future: futures.Future[_T]) -> None:
    if future.cancelled():
      with self._lock:
        cancel_wait = self._cancel_wait
      if cancel_wait:
        cancel_wait()


def start(steps: Coroutine[Any, None, _T]) -> futures.Future[_T]:
  """Runs a coroutine over this transport without waiting for its end.

  Returns:
    A future of what it returns or raises. Cancelling the future cancels the
    request that the coroutine waits for.
  """
  task = _Task(steps)
  task.run()
  return task.future
