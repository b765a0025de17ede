"""A request in flight that occupies no thread."""

from collections.abc import Callable
from concurrent import futures
import threading
from typing import Any, Protocol

import grpc

from saxml_ext.client import replicas
from saxml_ext.client import retry
from saxml_ext.client import timer
from saxml_ext.common import errors


class Chooser(Protocol):
  """What `data_client.DataClient` offers here."""

  def choose(self, avoid: str | None) -> replicas.Connection:
    """Picks a replica."""

  def has_others(self) -> bool:
    """Whether another one can be picked than one that just failed."""

  def call_when_known(self, function: Callable[[], None]) -> None:
    """Calls `function` once there is one to pick."""


class _Once:
  """A function that runs on the first of its calls only."""

  def __init__(self, function: Callable[[], None]):
    self._function = function
    self._lock = threading.Lock()

  def __call__(self) -> None:
    if self._lock.acquire(blocking=False):  # Never released.
      self._function()


class AsyncCall:
  """Sends a request, again where that may help, and fills a future.

  Each step runs where the step before it ended: in the caller's thread at
  first, then in gRPC's or the timer's. Cancelling the future cancels the
  request at the replica.

  Attributes:
    future: gives the response or raises SaxError.
  """

  def __init__(
      self,
      chooser: Chooser,
      send: Callable[[replicas.Connection], grpc.Future],
      convert: Callable[[Any], Any],
      attempts: retry.Retry,
  ):
    """Does nothing yet.

    Args:
      chooser: picks replicas.
      send: sends the request to a replica.
      convert: makes the future's result from the response.
      attempts: the clock of the call.
    """
    self.future = futures.Future()
    self._chooser = chooser
    self._send = send
    self._convert = convert
    self._attempts = attempts
    self._avoid: str | None = None
    self._lock = threading.Lock()
    self._rpc: grpc.Future | None = None

  def start(self) -> None:
    """Makes the first attempt."""
    self.future.add_done_callback(self._on_future_done)
    self._attempt()

  def _attempt(self) -> None:
    if self.future.done():
      return
    try:
      connection = self._chooser.choose(self._avoid)
    except errors.Unavailable as e:
      self._wait_for_replica(e)
      return
    except errors.SaxError as e:
      final = e  # Also NotFound: here the admin server says so.
      self._finish(lambda: self.future.set_exception(final))
      return
    self._avoid = connection.address
    connection.begin()
    rpc = self._send(connection)
    with self._lock:
      self._rpc = rpc
    rpc.add_done_callback(lambda done: self._on_rpc_done(connection, done))
    if self.future.cancelled():  # Since the check above.
      rpc.cancel()

  def _on_rpc_done(
      self, connection: replicas.Connection, rpc: grpc.Future
  ) -> None:
    connection.end()
    if self.future.done():
      return
    try:
      result = self._convert(rpc.result())
    except (grpc.RpcError, grpc.FutureCancelledError):
      self._on_error(errors.from_rpc_error(rpc))
    else:
      self._finish(lambda: self.future.set_result(result))

  def _wait_for_replica(self, error: errors.Unavailable) -> None:
    remaining = self._attempts.remaining()
    if self._delay_after(error, was_sent=False) is None:
      return
    once = _Once(self._attempt)
    if remaining is not None:
      timer.timer.call_after(remaining, once)
    self._chooser.call_when_known(once)

  def _on_error(self, error: errors.SaxError) -> None:
    delay = self._delay_after(error)
    if delay is not None:
      timer.timer.call_after(delay, self._attempt)

  def _delay_after(
      self, error: errors.SaxError, was_sent: bool = True
  ) -> float | None:
    """Seconds to the next attempt; None if that error was the last one."""
    try:
      return self._attempts.delay_after(
          error, was_sent, has_others=was_sent and self._chooser.has_others()
      )
    except errors.SaxError as e:
      final = e
    self._finish(lambda: self.future.set_exception(final))
    return None

  def _finish(self, fill: Callable[[], None]) -> None:
    try:
      fill()
    except futures.InvalidStateError:
      pass  # Cancelled a moment ago: nobody waits for the answer.

  def _on_future_done(self, future: futures.Future) -> None:
    if future.cancelled():
      with self._lock:
        rpc = self._rpc
      if rpc is not None:
        rpc.cancel()
