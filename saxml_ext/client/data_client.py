"""Requests to the replicas of one model."""

from collections.abc import Callable, Iterator
from concurrent import futures
import dataclasses
import time
from typing import Any

import grpc

from saxml_ext.client import address_watcher
from saxml_ext.client import admin_client
from saxml_ext.client import async_call
from saxml_ext.client import options as options_lib
from saxml_ext.client import replicas
from saxml_ext.client import retry
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
  stub_class: Callable[[grpc.Channel], Any]
  rpc: str


class DataClient:
  """Sends requests to a model's replicas, again where that may help.

  Thread-safe. Methods raise:
    NotFound: the model is not published.
    DeadlineExceeded: time is up; the text has the last error before.
    SaxError: the replica's answer where trying again does not help.
  """

  def __init__(self, model_id: str, options: options_lib.Options):
    """Does nothing yet: a bad id is an error of the first request."""
    self.model_id = model_id
    self._options = dataclasses.replace(options)
    self._retried = _RETRIED_FAIL_FAST if options.fail_fast else _RETRIED
    self._known_watcher: address_watcher.AddressWatcher | None = None

  def call(self, method: Method, request: Any, timeout: float | None) -> Any:
    """Sends a request and waits for its response."""
    attempts = self._attempts(method, timeout)
    avoid = None
    while True:
      try:
        connection = self.choose(avoid, attempts.remaining())
        avoid = connection.address
        call = getattr(connection.stub(method.stub_class), method.rpc)
        with connection.request():
          return call(request, timeout=attempts.remaining())
      except grpc.RpcError as e:
        delay = attempts.delay_after(
            errors.from_rpc_error(e), has_others=self.has_others()
        )
      except errors.Unavailable as e:
        delay = attempts.delay_after(e, was_sent=False)
      time.sleep(delay)

  def call_async(
      self,
      method: Method,
      request: Any,
      timeout: float | None,
      convert: Callable[[Any], Any],
  ) -> futures.Future:
    """Sends a request without waiting.

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

  def call_stream(
      self, method: Method, request: Any, timeout: float | None
  ) -> Iterator[Any]:
    """Sends a request and yields its responses.

    An error after the first response is final.
    """
    attempts = self._attempts(method, timeout)
    avoid = None
    started = False
    while True:
      try:
        connection = self.choose(avoid, attempts.remaining())
        avoid = connection.address
        call = getattr(connection.stub(method.stub_class), method.rpc)
        with connection.request():
          for response in call(request, timeout=attempts.remaining()):
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
      time.sleep(delay)

  def choose(
      self, avoid: str | None, timeout: float | None
  ) -> replicas.Connection:
    """Picks a replica.

    Args:
      avoid: replica that just failed.
      timeout: seconds to wait until there is one; None for no limit.

    Raises:
      Unavailable: there is none, for the time being.
      SaxError: there will be none.
    """
    if self._options.proxy_addr:
      return replicas.connections.get(self._options.proxy_addr)
    addresses = self._watcher().addresses(timeout)
    return replicas.choose(addresses, self._options.num_conn, avoid)

  def has_others(self) -> bool:
    """Whether another replica can be picked than one that just failed."""
    if self._options.proxy_addr:
      return False
    return self._watcher().count() > 1 and self._options.num_conn > 1

  def call_when_known(self, function: Callable[[], None]) -> None:
    """Calls `function` once `choose` would not have to wait."""
    self._watcher().call_when_known(function)

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
