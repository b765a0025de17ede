"""Defines how a client sends requests and waits for answers.

The client's logic (retries, choice of replicas, watching) is written once, as
coroutines over a `Transport`. With the transport of this module, they never
suspend, so a plain function can run them. With the transport of
asynchronous.py, they suspend as usual.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
import contextlib
import functools
import threading
import time
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc

from saxml_ext.client.transport import attempts
from saxml_ext.common import grpc_util
from saxml_ext.common.telemetry import tracing

_P = ParamSpec('_P')
_S = TypeVar('_S')
_T = TypeVar('_T')

_PROBE_SECONDS = 5.0


class Watcher(Protocol):
  """The interface of `address_watcher.AddressWatcher` that this module uses."""

  def addresses(self, timeout: float | None) -> frozenset[str]:
    """Returns the addresses of the replicas, "host:port"."""

  def count(self) -> int:
    """Returns the number of replicas that are known now."""

  def call_when_known(self, function: Callable[[], None]) -> None:
    """Calls `function` as soon as `addresses` would return without waiting."""


class _Lock:
  """A thread lock with the interface of an asyncio lock."""

  def __init__(self):
    self._lock = threading.Lock()

  async def __aenter__(self) -> None:
    self._lock.acquire()

  async def __aexit__(self, *exc_info) -> None:
    self._lock.release()


class Transport:
  """Sends requests and waits; its coroutines never suspend. Thread-safe.

  Subclasses wait in other ways.

  Attributes:
    connections: The connections to model servers.
    admin_clients: The `admin_client.AdminClient` by (sax_root, cell).
  """

  def __init__(self):
    self.connections = attempts.Connections(self.channel)
    self.admin_clients: dict[tuple[str, str], Any] = {}

  def channel(self, address: str) -> grpc.Channel | grpc.aio.Channel:
    """Returns a new channel to "host:port"."""
    return grpc_util.channel(address)

  def probe(self, address: str) -> None:
    """Sends a small request to "host:port" if requests are outstanding there.

    A host that is gone does not acknowledge it. The connection then ends and
    with it its requests (see `grpc_util.CHANNEL_OPTIONS`), so they can be sent
    to others. Without the probe, requests that were acknowledged would wait
    until their deadlines. Any thread may call this method; it does not wait.
    """
    if connection := self.connections.busy(address):
      check = connection.stub(health_pb2_grpc.HealthStub).Check
      # In an event loop, gRPC starts calls at once.
      started = getattr(check, 'future', check)(
        health_pb2.HealthCheckRequest(), timeout=_PROBE_SECONDS
      )
      # gRPC cancels a call that has no references.
      started.add_done_callback(lambda _: None)

  def lock(self) -> contextlib.AbstractAsyncContextManager:
    """Returns a new lock for one holder at a time."""
    return _Lock()

  async def sleep(self, seconds: float) -> None:
    """Waits for a number of seconds."""
    time.sleep(seconds)

  async def read(self, function: Callable[..., _T], *args) -> _T:
    """Calls a function that reads files."""
    return function(*args)

  async def send(self, rpc: Any, request: Any, timeout: float | None) -> Any:
    """Calls a method of a stub; raises grpc.RpcError."""
    return rpc(request, timeout=timeout, metadata=tracing.OUTGOING.get())

  async def stream(
    self, rpc: Any, request: Any, timeout: float | None
  ) -> AsyncGenerator[Any, None]:
    """Calls a streaming method of a stub; raises grpc.RpcError.

    Closing the iterator cancels the call.
    """
    call = rpc(request, timeout=timeout, metadata=tracing.OUTGOING.get())
    try:
      for response in call:
        yield response
    finally:
      call.cancel()

  async def addresses(
    self, watcher: Watcher, timeout: float | None
  ) -> frozenset[str]:
    """Returns the watcher's addresses; waits for the first one."""
    return watcher.addresses(timeout)


TRANSPORT = Transport()


def transport() -> Transport:
  """Returns the only blocking transport of this process."""
  return TRANSPORT


def run(awaitable: Awaitable[_T]) -> _T:
  """Runs a coroutine over the blocking transport; returns its result."""
  steps = awaitable.__await__()
  try:
    next(steps)
  except StopIteration as e:
    return e.value
  raise RuntimeError(f'{awaitable} suspended, so it needs an event loop')


def wrap(function: Callable[_P, Awaitable[_T]]) -> Callable[_P, _T]:
  """Returns the blocking form of a coroutine function over `TRANSPORT`."""

  @functools.wraps(function)
  def blocking(*args: _P.args, **kwargs: _P.kwargs) -> _T:
    return run(function(*args, **kwargs))

  return blocking


class Wrapper(Generic[_S]):
  """The base of a class with blocking methods, which `method` creates.

  It is not a subclass of the class with the coroutines, because its methods
  return results instead of awaitables.

  Attributes:
    COROUTINES: The class whose coroutines the methods run.
  """

  COROUTINES: type[_S]

  def __init__(self, client: Any):
    """Sets the `data_client.DataClient` that sends the requests."""
    self._client = client
    self._coroutines: _S = self.COROUTINES(client)  # type: ignore[call-arg]


def method(
  function: Callable[Concatenate[_S, _P], Awaitable[_T]],
) -> Callable[Concatenate[Wrapper[_S], _P], _T]:
  """Returns the blocking form of a coroutine method, for a `Wrapper`."""

  @functools.wraps(function)
  def blocking(self: Wrapper[_S], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    return run(function(self._coroutines, *args, **kwargs))

  return blocking


def iterate(items: AsyncGenerator[_T, None]) -> Iterator[_T]:
  """Yields the items of an asynchronous generator over `TRANSPORT`."""
  try:
    while True:
      try:
        item = run(anext(items))
      except StopAsyncIteration:
        return
      yield item
  finally:
    run(items.aclose())


def wrap_stream(
  function: Callable[_P, AsyncGenerator[_T, None]],
) -> Callable[_P, Iterator[_T]]:
  """Returns the blocking form of an asynchronous generator function."""

  @functools.wraps(function)
  def blocking(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
    return iterate(function(*args, **kwargs))

  return blocking
