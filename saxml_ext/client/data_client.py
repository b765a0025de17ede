"""Requests to the replicas of one model."""

from collections.abc import AsyncIterator, Callable
from concurrent import futures
import contextlib
import dataclasses
from typing import Any

import grpc

from saxml_ext.client import address_watcher
from saxml_ext.client import admin_client
from saxml_ext.client import async_call
from saxml_ext.client import blocking
from saxml_ext.client import options as options_lib
from saxml_ext.client import replicas
from saxml_ext.client import retry
from saxml_ext.client import transport as transport_lib
from saxml_ext.common import errors
from saxml_ext.common import ids

# NOT_FOUND: the replica is still loading the model, or just gave it away. If
# the model is not published, the admin server says so.
_RETRIED_FAIL_FAST = frozenset({grpc.StatusCode.NOT_FOUND})
_RETRIED = _RETRIED_FAIL_FAST | {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


@dataclasses.dataclass(frozen=True)
class Method:
  """A data method.

  Attributes:
    name: for error messages and ACLs, "lm.generate".
    stub_class: of its service.
    rpc: its name there, "Generate".
  """

  name: str
  stub_class: Callable[..., Any]
  rpc: str


class DataClient:
  """Sends requests to a model's replicas, again where that may help.

  Methods raise:
    NotFound: the model is not published.
    DeadlineExceeded: time is up; the text has the last error before.
    SaxError: the replica's answer where trying again does not help.
  """

  def __init__(
      self,
      model_id: str,
      options: options_lib.Options,
      transport: Callable[[], transport_lib.Transport],
  ):
    """Does nothing yet: a bad id is an error of the first request."""
    self.model_id = model_id
    self._options = dataclasses.replace(options)
    self._transport = transport
    self._retried = _RETRIED_FAIL_FAST if options.fail_fast else _RETRIED
    self._known_watcher: address_watcher.AddressWatcher | None = None

  async def call(
      self, method: Method, request: Any, timeout: float | None
  ) -> Any:
    """Sends a request and returns its response."""
    transport = self._transport()
    attempts = self._attempts(method, timeout)
    avoid = None
    while True:
      try:
        connection = await self._choose(transport, avoid, attempts.remaining())
        avoid = connection.address
        rpc = getattr(connection.stub(method.stub_class), method.rpc)
        with connection.request():
          return await transport.send(rpc, request, attempts.remaining())
      except grpc.RpcError as e:
        delay = attempts.delay_after(
            errors.from_rpc_error(e), has_others=self.has_others()
        )
      except errors.Unavailable as e:
        delay = attempts.delay_after(e, was_sent=False)
      await transport.sleep(delay)

  async def call_with(
      self,
      method: Method,
      request: Any,
      options: options_lib.ModelOptions | None,
  ) -> Any:
    """As `call`; fills in the request's model key and extra inputs."""
    options = options or options_lib.ModelOptions()
    request.model_key = self.model_id
    # Sent also when empty, as other clients do.
    request.extra_inputs.CopyFrom(options.ToProto())
    return await self.call(method, request, options.seconds)

  async def stream(
      self, method: Method, request: Any, timeout: float | None
  ) -> AsyncIterator[Any]:
    """Sends a request and yields its responses.

    An error after the first response is final. Closing the iterator cancels
    the request.
    """
    transport = self._transport()
    attempts = self._attempts(method, timeout)
    avoid = None
    started = False
    while True:
      try:
        connection = await self._choose(transport, avoid, attempts.remaining())
        avoid = connection.address
        rpc = getattr(connection.stub(method.stub_class), method.rpc)
        responses = transport.stream(rpc, request, attempts.remaining())
        with connection.request():
          async with contextlib.aclosing(responses):
            async for response in responses:
              started = True
              yield response
        return
      except grpc.RpcError as e:
        error = errors.from_rpc_error(e)
        if started:
          raise error from e
        delay = attempts.delay_after(error, has_others=self.has_others())
      except errors.Unavailable as e:
        delay = attempts.delay_after(e, was_sent=False)
      await transport.sleep(delay)

  def future(
      self,
      method: Method,
      request: Any,
      timeout: float | None,
      convert: Callable[[Any], Any],
  ) -> futures.Future:
    """Sends a request without waiting, over the blocking transport.

    Returns:
      A future of `convert(response)`; it raises what `call` raises.
    """
    attempts = self._attempts(method, timeout)

    def send(connection: replicas.Connection) -> grpc.Future:
      rpc = getattr(connection.stub(method.stub_class), method.rpc)
      return rpc.future(request, timeout=attempts.remaining())

    call = async_call.AsyncCall(self, send, convert, attempts)
    call.start()
    return call.future

  def choose(self, avoid: str | None) -> replicas.Connection:
    """Picks a replica, over the blocking transport and without waiting.

    Args:
      avoid: replica that just failed.

    Raises:
      Unavailable: there is none, for the time being.
      SaxError: there will be none.
    """
    return blocking.run(self._choose(blocking.TRANSPORT, avoid, 0.0))

  def has_others(self) -> bool:
    """Whether another replica can be picked than one that just failed."""
    if self._options.proxy_addr:
      return False
    return self._watcher().count() > 1 and self._options.num_conn > 1

  def call_when_known(self, function: Callable[[], None]) -> None:
    """Calls `function` once `choose` would find a replica or an error."""
    self._watcher().call_when_known(function)

  async def _choose(
      self,
      transport: transport_lib.Transport,
      avoid: str | None,
      timeout: float | None,
  ) -> replicas.Connection:
    if self._options.proxy_addr:
      return transport.connections.get(self._options.proxy_addr)
    addresses = await transport.addresses(self._watcher(), timeout)
    return transport.connections.choose(
        addresses, self._options.num_conn, avoid
    )

  def _watcher(self) -> address_watcher.AddressWatcher:
    # Looked up once: later requests spend their time on better things.
    if self._known_watcher is None:
      model_id = ids.parse_model_id(self.model_id)
      admin = admin_client.get(model_id.cell)
      self._known_watcher = address_watcher.get(admin, str(model_id))
    return self._known_watcher

  def _attempts(self, method: Method, timeout: float | None) -> retry.Retry:
    what = f'{method.name} of {self.model_id}'
    return retry.Retry(what, timeout, self._retried)
