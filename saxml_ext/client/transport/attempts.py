"""Chooses the replica of each attempt of a call, and when to retry."""

from collections.abc import Awaitable, Callable, Collection
import random
import threading
import time
from typing import Any, TypeVar
import zlib

import grpc

from saxml_ext.common import backoff
from saxml_ext.common import errors
from saxml_ext.common.security import tls

_JITTER = 0.5
_BACKOFF = backoff.Backoff(first=0.010, growth=1.1, most=20.0, jitter=_JITTER)
# With less time left, in seconds, another attempt cannot succeed.
_LEAST_REMAINING = 0.005

_IDLE_SECONDS = 600.0
_SWEEP_SECONDS = 60.0

# The seed makes different processes prefer different replicas.
_SEED = random.getrandbits(32)

_T = TypeVar('_T')


class Retry:
  """The attempts of one call, with delays that grow by 1.1 from 10 ms to 20 s.

  It is not thread-safe, because the attempts of a call run one after another.

  Attributes:
    avoid: The replica of the latest attempt; None if there was none.
  """

  def __init__(
    self, what: str, timeout: float | None, retried: Collection[grpc.StatusCode]
  ):
    """Starts the clock.

    Args:
      what: The name of the call in error messages, "lm.generate of
        /sax/test/m".
      timeout: The time limit of all attempts together, in seconds; None for no
        limit.
      retried: The codes of errors that another attempt may resolve.
    """
    self._what = what
    self._timeout = timeout
    self._retried = retried
    self._deadline = None if timeout is None else time.monotonic() + timeout
    self._attempts = 0
    self.avoid: str | None = None
    self._last: errors.SaxError | None = None

  def remaining(self) -> float | None:
    """Returns the seconds left, at least 0, or None for no limit."""
    if self._deadline is None:
      return None
    return max(0.0, self._deadline - time.monotonic())

  async def run(
    self,
    attempt: Callable[[], Awaitable[_T]],
    sleep: Callable[[float], Awaitable[None]],
    has_others: Callable[[], bool] = lambda: False,
  ) -> _T:
    """Makes attempts until one succeeds.

    Args:
      attempt: The function that sends the request once. It raises grpc.RpcError
        if the request failed, Unavailable if there is currently no server to
        send it to, and any other `SaxError` for a final error.
      sleep: The function that waits for a number of seconds.
      has_others: A function that returns True if the next attempt goes to
        another server.

    Returns:
      The result of the successful attempt.

    Raises:
      SaxError: See `delay_after`.
    """
    while True:
      try:
        return await attempt()
      except grpc.RpcError as e:
        error = errors.from_rpc_error(e)
        delay = self.delay_after(error, has_others=has_others())
      except errors.Unavailable as e:
        delay = self.delay_after(e, was_sent=False)
      await sleep(delay)

  def delay_after(
    self,
    error: errors.SaxError,
    was_sent: bool = True,
    has_others: bool = False,
  ) -> float:
    """Returns the seconds to wait before the next attempt.

    The delay is at least `error.retry_after`, unless the next attempt goes to
    another server.

    Args:
      error: The error of the attempt that failed.
      was_sent: True if the request was sent. A request that was not sent is
        always retried if the error is Unavailable.
      has_others: True if there are other replicas.

    Raises:
      SaxError: There is no next attempt. If the time limit passed, this is
        DeadlineExceeded, with the last error before it in the message.
    """
    self._attempts += 1
    remaining = self.remaining()
    in_time = remaining is None or remaining > _LEAST_REMAINING
    unsent = not was_sent and isinstance(error, errors.Unavailable)
    if unsent or error.code in self._retried:
      self._last = error
    elif in_time or error.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
      raise error
    if not in_time:
      raise self._too_late() from self._last
    delay = _BACKOFF.pause(self._attempts)
    if error.retry_after is not None and not has_others:
      # The delay is never shorter than requested. It is random, so that not all
      # callers retry at the same time.
      requested = error.retry_after * random.uniform(1, 1 + _JITTER)
      delay = max(delay, requested)
    if remaining is None:
      return delay
    # Half of the remaining time leaves room for attempts just before the
    # deadline.
    return min(delay, remaining / 2)

  def _too_late(self) -> errors.DeadlineExceeded:
    assert self._timeout is not None  # Without a limit, it is never too late.
    text = f'{self._what}: no answer within {round(self._timeout, 3):g} s'
    if self._last is not None:
      tries = 'attempt' if self._attempts == 1 else 'attempts'
      text += (
        f' in {self._attempts} {tries}, last error: '
        f'{self._last.code.name}: {self._last.message}'
      )
    return errors.DeadlineExceeded(text)


def _rank(address: str) -> int:
  return zlib.crc32(address.encode(), _SEED)


class Connection:
  """A connection to one model server. Thread-safe.

  Attributes:
    address: The address, "host:port".
    outstanding: The number of requests that were sent and not yet answered.
  """

  def __init__(self, address: str, channel: grpc.Channel | grpc.aio.Channel):
    self.address = address
    self.outstanding = 0
    self._lock = threading.Lock()
    self._channel = channel
    self._stubs: dict[Callable[..., Any], Any] = {}
    self._last_used = time.monotonic()

  def stub(self, stub_class: Callable[..., Any]) -> Any:
    """Returns the stub of a service, created on first use."""
    with self._lock:
      if stub_class not in self._stubs:
        self._stubs[stub_class] = stub_class(self._channel)
      return self._stubs[stub_class]

  def begin(self) -> None:
    """Counts a request as outstanding."""
    with self._lock:
      self.outstanding += 1
      self._last_used = time.monotonic()

  def end(self) -> None:
    """Counts a request as answered."""
    with self._lock:
      self.outstanding -= 1
      self._last_used = time.monotonic()

  def is_idle(self, now: float) -> bool:
    """Returns True if the connection was not used for ten minutes."""
    return not self.outstanding and now > self._last_used + _IDLE_SECONDS


class Connections:
  """The connections to model servers, by address. Thread-safe."""

  def __init__(self, channel: Callable[[str], grpc.Channel | grpc.aio.Channel]):
    """Sets the function that opens a channel to an address "host:port"."""
    self._channel = channel
    self._lock = threading.Lock()
    self._by_address: dict[str, Connection] = {}
    self._swept = time.monotonic()
    self._tls = tls.version()

  def get(self, address: str) -> Connection:
    """Returns the connection to "host:port", created on first use.

    Raises:
      errors.InvalidArgument: The TLS settings are wrong.
    """
    with self._lock:
      self._sweep(time.monotonic())
      self._renew()
      if address not in self._by_address:
        self._by_address[address] = Connection(address, self._channel(address))
      return self._by_address[address]

  def busy(self, address: str) -> Connection | None:
    """Returns the connection to "host:port" if requests are outstanding."""
    with self._lock:
      connection = self._by_address.get(address)
    return connection if connection and connection.outstanding else None

  def all(self) -> list[Connection]:
    """Returns the open connections."""
    with self._lock:
      return list(self._by_address.values())

  def choose(
    self, addresses: Collection[str], num_conn: int, avoid: str | None
  ) -> Connection:
    """Chooses a replica for a request.

    It takes the less busy one of two random replicas. This spreads the load
    nearly as evenly as comparing all replicas.

    Args:
      addresses: The addresses of all replicas; not empty.
      num_conn: The maximum number of replicas to use.
      avoid: The replica that just failed; it is taken only if there is no
        other.
    """
    if len(addresses) == 1:
      return self.get(*addresses)
    candidates = list(addresses)
    if len(candidates) > num_conn:
      candidates = sorted(candidates, key=_rank)[: max(1, num_conn)]
    if avoid in candidates and len(candidates) > 1:
      candidates.remove(avoid)
    pair = random.sample(candidates, min(2, len(candidates)))
    return min(map(self.get, pair), key=lambda c: c.outstanding)

  def _renew(self) -> None:
    """Forgets connections with an old certificate, as `_sweep` does."""
    version = tls.version()
    if version is not self._tls:
      self._tls = version
      self._by_address = {}

  def _sweep(self, now: float) -> None:
    if now < self._swept + _SWEEP_SECONDS:
      return
    self._swept = now
    # Connections are forgotten but not closed, because a caller may still use
    # one.
    self._by_address = {
      address: connection
      for address, connection in self._by_address.items()
      if not connection.is_idle(now)
    }
