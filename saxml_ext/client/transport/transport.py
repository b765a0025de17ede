"""How a client sends and waits, apart from what it sends and when.

The client's logic (retries, choice of replicas, watching) is written once, as
coroutines over a `Transport`. With blocking.py's they never suspend, and a
plain function can run them; with asynchronous.py's they suspend as coroutines
do.
"""

from collections.abc import AsyncGenerator, Callable
import contextlib
from typing import Any, Protocol, TypeVar

import grpc
from grpc_health.v1 import health_pb2

from saxml_ext.client.transport import replicas

_T = TypeVar('_T')

_PROBE_SECONDS = 5.0


class Watcher(Protocol):
  """What `address_watcher.AddressWatcher` offers here."""

  def addresses(self, timeout: float | None) -> frozenset[str]:
    """The replicas' addresses, "host:port"."""

  def count(self) -> int:
    """How many replicas are known right now."""

  def call_when_known(self, function: Callable[[], None]) -> None:
    """Calls `function` once `addresses` would not have to wait."""


def start_probe(call: Callable[..., Any]) -> None:
  """Calls a stub's method, whose answer is of no interest, without waiting."""
  started = call(health_pb2.HealthCheckRequest(), timeout=_PROBE_SECONDS)
  # gRPC cancels a call that nothing refers to.
  started.add_done_callback(lambda _: None)


class Transport(Protocol):
  """Sends and waits.

  Attributes:
    connections: to model servers.
    admin_clients: (sax_root, cell) -> `admin_client.AdminClient`.
  """

  connections: replicas.Connections
  admin_clients: dict[tuple[str, str], Any]

  def channel(self, address: str) -> grpc.Channel | grpc.aio.Channel:
    """A new channel to "host:port"."""

  def probe(self, address: str) -> None:
    """Sends a little to "host:port" where requests are outstanding.

    Whoever is gone does not acknowledge it, which ends the connection and with
    it the requests (see `grpc_util.CHANNEL_OPTIONS`): they can be sent to
    others. Those acknowledged before would wait until their deadlines. Any
    thread may call this; it does not wait.
    """

  def lock(self) -> contextlib.AbstractAsyncContextManager:
    """A new lock, to be held by one caller at a time."""

  async def sleep(self, seconds: float) -> None:
    """Waits."""

  async def read(self, function: Callable[..., _T], *args) -> _T:
    """Calls a function that reads files."""

  async def send(self, rpc: Any, request: Any, timeout: float | None) -> Any:
    """Calls a stub's method; raises grpc.RpcError."""

  def stream(
    self, rpc: Any, request: Any, timeout: float | None
  ) -> AsyncGenerator[Any, None]:
    """Calls a stub's streaming method; raises grpc.RpcError.

    Closing the iterator cancels the call.
    """

  async def addresses(
    self, watcher: Watcher, timeout: float | None
  ) -> frozenset[str]:
    """The watcher's addresses, waiting for the first one."""
