"""The transport that blocks the calling thread, and how to run over it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
import functools
import threading
import time
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import grpc
from grpc_health.v1 import health_pb2_grpc

from saxml_ext.client.transport import replicas
from saxml_ext.client.transport import transport as transport_lib
from saxml_ext.common import grpc_util
from saxml_ext.common.telemetry import tracing

_P = ParamSpec('_P')
_S = TypeVar('_S')
_T = TypeVar('_T')


class _Lock:
  """A thread's lock, spelled as a coroutine's."""

  def __init__(self):
    self._lock = threading.Lock()

  async def __aenter__(self) -> None:
    self._lock.acquire()

  async def __aexit__(self, *exc_info) -> None:
    self._lock.release()


class Blocking:
  """A `transport_lib.Transport` whose coroutines never suspend. Thread-safe."""

  def __init__(self):
    self.connections = replicas.Connections(self.channel)
    self.admin_clients: dict[tuple[str, str], Any] = {}

  def channel(self, address: str) -> grpc.Channel:
    return grpc_util.channel(address)

  def probe(self, address: str) -> None:
    connection = self.connections.busy(address)
    if connection:
      stub = connection.stub(health_pb2_grpc.HealthStub)
      transport_lib.start_probe(stub.Check.future)

  def lock(self) -> _Lock:
    return _Lock()

  async def sleep(self, seconds: float) -> None:
    time.sleep(seconds)

  async def read(self, function: Callable[..., _T], *args) -> _T:
    return function(*args)

  async def send(self, rpc: Any, request: Any, timeout: float | None) -> Any:
    return rpc(request, timeout=timeout, metadata=tracing.OUTGOING.get())

  async def stream(
    self, rpc: Any, request: Any, timeout: float | None
  ) -> AsyncGenerator[Any, None]:
    call = rpc(request, timeout=timeout, metadata=tracing.OUTGOING.get())
    try:
      for response in call:
        yield response
    finally:
      call.cancel()

  async def addresses(
    self, watcher: transport_lib.Watcher, timeout: float | None
  ) -> frozenset[str]:
    return watcher.addresses(timeout)


TRANSPORT = Blocking()


def transport() -> Blocking:
  """This process's only one."""
  return TRANSPORT


def run(awaitable: Awaitable[_T]) -> _T:
  """Runs a coroutine over the blocking transport; returns its result."""
  steps = awaitable.__await__()
  try:
    next(steps)
  except StopIteration as e:
    return e.value
  raise RuntimeError(f'{awaitable} suspended: it is for an event loop')


def of(function: Callable[_P, Awaitable[_T]]) -> Callable[_P, _T]:
  """The blocking form of a coroutine function over the blocking transport."""

  @functools.wraps(function)
  def blocking(*args: _P.args, **kwargs: _P.kwargs) -> _T:
    return run(function(*args, **kwargs))

  return blocking


class Wrapper(Generic[_S]):
  """Base of a class whose methods block; `method` makes them.

  No subclass of the class with the coroutines: its methods return results, not
  what has to be awaited.
  """

  def __init__(self, coroutines: _S):
    """Takes the object whose coroutines the methods run."""
    self._coroutines = coroutines


def method(
  function: Callable[Concatenate[_S, _P], Awaitable[_T]],
) -> Callable[Concatenate[Wrapper[_S], _P], _T]:
  """The blocking form of a coroutine method, for a `Wrapper` of its class."""

  @functools.wraps(function)
  def blocking(self: Wrapper[_S], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    return run(function(self._coroutines, *args, **kwargs))

  return blocking


def iterate(items: AsyncGenerator[_T, None]) -> Iterator[_T]:
  """The items of an asynchronous generator over the blocking transport."""
  try:
    while True:
      try:
        item = run(anext(items))
      except StopAsyncIteration:
        return
      yield item
  finally:
    run(items.aclose())


def stream_of(
  function: Callable[_P, AsyncGenerator[_T, None]],
) -> Callable[_P, Iterator[_T]]:
  """The blocking form of an asynchronous generator function."""

  @functools.wraps(function)
  def blocking(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
    return iterate(function(*args, **kwargs))

  return blocking
