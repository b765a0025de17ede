"""Records each call that a server of a cell answers.

A call gets:

- a request id, which goes back to the client in the trailing metadata;
- a span, if spans are enabled;
- an update of the usual counters of gRPC servers (`grpc_server_*`);
- a log line at its end, depending on `configure`.

Without spans and a log line, all of this takes four microseconds per call.
"""

import functools
import logging
import time
from types import TracebackType
from typing import Any, TypeAlias

import grpc
import prometheus_client

from saxml_ext.common import errors
from saxml_ext.common.security import access
from saxml_ext.common.telemetry import tracing

ALL, ERRORS, NONE = 'all', 'errors', 'none'

_logger = logging.getLogger('absl')  # It writes to stderr.
_logged = ERRORS

_LABELS = ('grpc_service', 'grpc_method')
_HANDLED = prometheus_client.Counter(
  'grpc_server_handled', 'Calls that ended, by status.', (*_LABELS, 'grpc_code')
)
_SECONDS = prometheus_client.Histogram(
  'grpc_server_handling_seconds',
  'Seconds from the start of a call to its end.',
  _LABELS,
  buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
# Clients get these codes in a healthy cell, and may get them very often.
_USUAL = frozenset(
  {
    'OK',
    'CANCELLED',
    'DEADLINE_EXCEEDED',
    'NOT_FOUND',
    'RESOURCE_EXHAUSTED',
    'UNAVAILABLE',
  }
)


_Traceback: TypeAlias = TracebackType | None


def configure(logged: str) -> None:
  """Sets which calls are logged: "all", "errors" or "none".

  "errors" leaves out results that also occur in a healthy cell: cancelled, too
  late, refused by a full queue, or sent to the wrong server. Counters still
  count these calls.
  """
  global _logged
  _logged = logged


def is_logged(usual: bool) -> bool:
  """Returns True if a call gets a log line.

  Args:
    usual: True if the call ended as calls in a healthy cell may end.
  """
  return _logged != NONE and (_logged == ALL or not usual)


class Served:
  """A call from its start to its end. Use it as a context manager.

  Attributes:
    request_id: The id of the call.
  """

  def __init__(
    self, request: Any, context: grpc.aio.ServicerContext, name: str
  ):
    """Takes the arguments of a servicer's method, and the method's name."""
    self._method = _full_name(getattr(request, 'DESCRIPTOR', None), name)
    self._request = request
    self._context = context
    metadata = context.invocation_metadata() or ()
    self.request_id = tracing.id_of(metadata)
    self._code = ''
    self._text = ''
    self._span = tracing.server_call(self._method, metadata)

  def __enter__(self) -> 'Served':
    self._begin = time.monotonic()
    self._token = tracing.use_id(self.request_id)
    self._made = span = self._span.__enter__()
    if span is not None:
      span.set_attribute('sax.request_id', self.request_id)
      if model := _model(self._request):
        span.set_attribute('sax.model', model)
    return self

  @property
  def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
    """The metadata that goes back to the client with the response."""
    return ((tracing.REQUEST_ID, self.request_id),)

  def succeeded(self) -> None:
    """Sets the trailing metadata. Call it before the method returns."""
    given = self._context.trailing_metadata() or ()
    self._context.set_trailing_metadata((*given, *self.trailing_metadata))

  def failed(self, code: grpc.StatusCode, text: str) -> None:
    """Records the status with which the call will end."""
    self._code, self._text = code.name, text
    tracing.failed(self._made, f'{code.name}: {text}')

  def aborted(self) -> None:
    """Records the status that the method has set itself."""
    self.failed(self._context.code(), self._context.details())

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: _Traceback,
  ) -> None:
    self._span.__exit__(kind, error, traceback)
    # Nearly all calls succeed, and these need no call to `errors`.
    code = self._code or ('OK' if error is None else errors.code_name(error))
    seconds = time.monotonic() - self._begin
    handled, took = _children(self._method, code)
    handled.inc()
    took.observe(seconds)
    if _is_logged(self._method, code):
      self._log(code, seconds)
    tracing.restore_id(self._token)

  def _log(self, code: str, seconds: float) -> None:
    fields = {
      'method': self._method,
      'model': _model(self._request),
      'code': code,
      'seconds': round(seconds, 6),
      'caller': access.caller_name(self._context) or self._context.peer(),
      'request_id': self.request_id,
    }
    _logger.log(
      logging.INFO if code in _USUAL else logging.WARNING,
      '%s %s %s after %.3f s, request %s of %s%s',
      self._method,
      fields['model'] or '-',
      code,
      seconds,
      self.request_id,
      fields['caller'],
      f': {self._text}' if self._text else '',
      extra={'fields': fields},
    )


def _is_logged(method: str, code: str) -> bool:
  usual = code in _USUAL
  return is_logged(usual) and not (usual and method in tracing.BACKGROUND)


def _model(request: Any) -> str:
  """Returns the id of the model in a request, or '' if it has none."""
  for name in ('model_key', 'model_id'):
    if value := getattr(request, name, ''):
      return value
  return getattr(getattr(request, 'model', None), 'model_id', '')


@functools.cache
def _full_name(request: Any, name: str) -> str:
  """Returns the full name of a method, such as "sax.Admin/List".

  The service is found by the type of the request. A method with a stream of
  requests has no single type, so its own name is returned.
  """
  services = request.file.services_by_name if request is not None else {}
  for service in services.values():
    method = service.methods_by_name.get(name)
    if method is not None and method.input_type is request:
      return f'{service.full_name}/{name}'
  return f'stream/{name}'


@functools.cache
def _children(method: str, code: str) -> tuple[Any, Any]:
  service, _, name = method.partition('/')
  return (_HANDLED.labels(service, name, code), _SECONDS.labels(service, name))
