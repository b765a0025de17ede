"""Requests to the replicas of one model."""

from collections.abc import AsyncGenerator, Callable
import contextlib
import copy
import dataclasses
from typing import Any

import grpc

from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import attempts as attempts_lib
from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common.telemetry import tracing

# Bytes of an image, a recording or the like. Stock Sax's client takes texts,
# too.
Content = bytes | str

# NOT_FOUND: the replica is still loading the model, or just gave it away. If
# the model is not published, the admin server says so.
_RETRIED_FAIL_FAST = frozenset({grpc.StatusCode.NOT_FOUND})
_RETRIED = _RETRIED_FAIL_FAST | {
  grpc.StatusCode.UNAVAILABLE,
  grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def to_bytes(content: Content) -> bytes:
  """Returns the content as it is sent; texts are encoded in UTF-8."""
  return content.encode() if isinstance(content, str) else content


@dataclasses.dataclass(frozen=True)
class Method:
  """A data method.

  Attributes:
    name: for error messages and ACLs, "lm.generate".
    stub_class: The stub of its service.
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
    transport: Callable[[], blocking.Transport],
  ):
    """Does nothing yet: a bad id is an error of the first request."""
    self.model_id = options_lib.model_id(model_id)
    self._options = dataclasses.replace(options)
    self._transport = transport
    self._retried = _RETRIED_FAIL_FAST if options.fail_fast else _RETRIED
    if not options.wait_if_full:
      self._retried -= {grpc.StatusCode.RESOURCE_EXHAUSTED}
    self._known_watcher: address_watcher.AddressWatcher | None = None

  def over(self, transport: Callable[[], blocking.Transport]) -> 'DataClient':
    """Returns a client of the same model over another transport."""
    other = copy.copy(self)
    other._transport = transport
    return other

  async def call(
    self, method: Method, request: Any, options: options_lib.ModelOptions | None
  ) -> Any:
    """Fills in a request's model key, sends it and returns its response."""
    request.model_key = self.model_id
    transport = self._transport()
    attempts = self._attempts(method, options_lib.timeout_of(options))

    async def attempt() -> Any:
      connection, rpc = await self._choose(transport, method, attempts)
      connection.begin()
      try:
        response = await transport.send(rpc, request, attempts.remaining())
      finally:
        connection.end()
      self._note_answer()
      return response

    with tracing.outgoing_call(method.name, self.model_id):
      return await attempts.run(attempt, transport.sleep, self._has_others)

  async def call_with(
    self, method: Method, request: Any, options: options_lib.ModelOptions | None
  ) -> Any:
    """Does what `call` does; fills in the extra inputs, too."""
    options = options or options_lib.ModelOptions()
    # Sent also when empty, as other clients do.
    request.extra_inputs.CopyFrom(options.ToProto())
    return await self.call(method, request, options)

  async def stream(
    self, method: Method, request: Any, timeout: float | None
  ) -> AsyncGenerator[Any, None]:
    """Sends a request and yields its responses.

    An error after the first response is final. Closing the iterator cancels
    the request.
    """
    transport = self._transport()
    attempts = self._attempts(method, timeout)

    async def begin() -> tuple[AsyncGenerator[Any, None], Any]:
      connection, rpc = await self._choose(transport, method, attempts)
      responses = _outstanding(
        connection, transport.stream(rpc, request, attempts.remaining())
      )
      return responses, await anext(responses, None)

    with tracing.client_call(
      method.name, {'sax.model': self.model_id}
    ) as added:
      with tracing.sending(added):
        responses, first = await attempts.run(
          begin, transport.sleep, self._has_others
        )
      async with contextlib.aclosing(responses):
        if first is None:
          return
        self._note_answer()
        yield first
        try:
          async for response in responses:
            yield response
        except grpc.RpcError as e:
          raise errors.from_rpc_error(e) from e

  async def _choose(
    self,
    transport: blocking.Transport,
    method: Method,
    attempts: attempts_lib.Retry,
  ) -> tuple[attempts_lib.Connection, Any]:
    """Returns the connection of the next attempt, and its stub's method."""
    connections = transport.connections
    if self._options.proxy_addr:
      connection = connections.get(self._options.proxy_addr)
    else:
      connection = connections.choose(
        await transport.addresses(self._watcher(), attempts.remaining()),
        self._options.num_conn,
        attempts.avoid,
      )
    attempts.avoid = connection.address
    return connection, getattr(connection.stub(method.stub_class), method.rpc)

  def _has_others(self) -> bool:
    """Returns True if there is another replica than one that just failed."""
    if self._options.proxy_addr:
      return False
    return self._watcher().count() > 1 and self._options.num_conn > 1

  def _note_answer(self) -> None:
    if self._known_watcher is not None:
      self._known_watcher.answered = True

  def _watcher(self) -> address_watcher.AddressWatcher:
    # Looked up once: later requests spend their time on better things.
    if self._known_watcher is None:
      model_id = ids.parse_model_id(self.model_id)
      admin = admin_client.get(model_id.cell)
      self._known_watcher = address_watcher.get(admin, str(model_id))
    return self._known_watcher

  def _attempts(
    self, method: Method, timeout: float | None
  ) -> attempts_lib.Retry:
    what = f'{method.name} of {self.model_id}'
    return attempts_lib.Retry(what, timeout, self._retried)


class Caller:
  """Base of a class whose methods send requests to a model's replicas."""

  def __init__(self, client: DataClient):
    """Sends requests through `client`."""
    self._client = client
    self._call = client.call_with


async def _outstanding(
  connection: attempts_lib.Connection, responses: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
  """Yields the responses; until they end, the request is outstanding."""
  connection.begin()
  try:
    async with contextlib.aclosing(responses):
      async for response in responses:
        yield response
  finally:
    connection.end()
