"""Sends requests to the replicas of one model."""

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

# Binary content such as an image or a recording. Stock Sax's client also
# accepts texts.
Content = bytes | str

# NOT_FOUND means that the replica is still loading the model, or has just
# unloaded it. If the model is not published, the admin server reports that.
_RETRIED_FAIL_FAST = frozenset({grpc.StatusCode.NOT_FOUND})
_RETRIED = _RETRIED_FAIL_FAST | {
  grpc.StatusCode.UNAVAILABLE,
  grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def to_bytes(content: Content) -> bytes:
  """Returns the content as bytes; texts are encoded in UTF-8."""
  return content.encode() if isinstance(content, str) else content


@dataclasses.dataclass(frozen=True)
class Method:
  """A data method.

  Attributes:
    name: The name in error messages and ACLs, "lm.generate".
    stub_class: The stub class of its service.
    rpc: The method's name in the stub, "Generate".
  """

  name: str
  stub_class: Callable[..., Any]
  rpc: str


class DataClient:
  """Sends requests to a model's replicas, and retries if that may help.

  Methods raise:
    NotFound: The model is not published.
    DeadlineExceeded: The deadline passed. The message has the last error before
      it.
    SaxError: The replica answered with an error that a retry cannot resolve.
  """

  def __init__(
    self,
    model_id: str,
    options: options_lib.Options,
    transport: Callable[[], blocking.Transport],
  ):
    """Creates the client without a check: an invalid id fails on first use."""
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
    """Sends a request like `call`, with the extra inputs of the options."""
    options = options or options_lib.ModelOptions()
    # Empty extra inputs are sent too, as other clients do.
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
    """Returns the connection of the next attempt and the stub's method."""
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
    """Returns True if there is a replica other than the one that failed."""
    if self._options.proxy_addr:
      return False
    return self._watcher().count() > 1 and self._options.num_conn > 1

  def _note_answer(self) -> None:
    if self._known_watcher is not None:
      self._known_watcher.answered = True

  def _watcher(self) -> address_watcher.AddressWatcher:
    # The watcher is looked up once, which saves time for later requests.
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
  """The base of a class whose methods send requests to a model's replicas."""

  def __init__(self, client: DataClient):
    """Sets the client that sends the requests."""
    self._client = client
    self._call = client.call_with


async def _outstanding(
  connection: attempts_lib.Connection, responses: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
  """Yields the responses. The request counts as outstanding until the end."""
  connection.begin()
  try:
    async with contextlib.aclosing(responses):
      async for response in responses:
        yield response
  finally:
    connection.end()
