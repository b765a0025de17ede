"""Connections to model servers, and the choice among them."""

from collections.abc import Callable, Collection
import random
import threading
import time
from typing import Any
import zlib

import grpc

from saxml_ext.common.security import tls

_IDLE_SECONDS = 600.0
_SWEEP_SECONDS = 60.0

# Different processes shall prefer different replicas.
_SEED = random.getrandbits(32)


def _rank(address: str) -> int:
  return zlib.crc32(address.encode(), _SEED)


class Connection:
  """One model server. Thread-safe.

  Attributes:
    address: "host:port".
    outstanding: requests sent and not yet answered.
  """

  def __init__(self, address: str, channel: grpc.Channel | grpc.aio.Channel):
    self.address = address
    self.outstanding = 0
    self._lock = threading.Lock()
    self._channel = channel
    self._stubs: dict[Callable[..., Any], Any] = {}
    self._last_used = time.monotonic()

  def stub(self, stub_class: Callable[..., Any]) -> Any:
    """The stub of a service, made once."""
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
    """Counts it as answered."""
    with self._lock:
      self.outstanding -= 1
      self._last_used = time.monotonic()

  def is_idle(self, now: float) -> bool:
    """Whether nobody used it for ten minutes."""
    return not self.outstanding and now > self._last_used + _IDLE_SECONDS


class Connections:
  """Connections by address. Thread-safe."""

  def __init__(self, channel: Callable[[str], grpc.Channel | grpc.aio.Channel]):
    """`channel` makes one to "host:port"."""
    self._channel = channel
    self._lock = threading.Lock()
    self._by_address: dict[str, Connection] = {}
    self._swept = time.monotonic()
    self._tls = tls.version()

  def get(self, address: str) -> Connection:
    """The connection to "host:port", made on first use.

    Raises:
      errors.InvalidArgument: TLS is set up wrongly.
    """
    with self._lock:
      self._sweep(time.monotonic())
      self._renew()
      if address not in self._by_address:
        self._by_address[address] = Connection(address, self._channel(address))
      return self._by_address[address]

  def busy(self, address: str) -> Connection | None:
    """The connection to "host:port" if requests are outstanding there."""
    with self._lock:
      connection = self._by_address.get(address)
    return connection if connection and connection.outstanding else None

  def all(self) -> list[Connection]:
    """Those that are open."""
    with self._lock:
      return list(self._by_address.values())

  def choose(
    self, addresses: Collection[str], num_conn: int, avoid: str | None
  ) -> Connection:
    """Picks a replica for a request.

    Of two random ones the less busy is taken, which spreads load nearly as
    evenly as looking at all of them.

    Args:
      addresses: of all replicas; not empty.
      num_conn: use at most so many of them.
      avoid: replica that just failed; taken only if there is no other.
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
    """Forgets connections that show an old certificate, as `_sweep` does."""
    version = tls.version()
    if version is not self._tls:
      self._tls = version
      self._by_address = {}

  def _sweep(self, now: float) -> None:
    if now < self._swept + _SWEEP_SECONDS:
      return
    self._swept = now
    # Forgotten, not closed: whoever just got one may still use it.
    self._by_address = {
      address: connection
      for address, connection in self._by_address.items()
      if not connection.is_idle(now)
    }
