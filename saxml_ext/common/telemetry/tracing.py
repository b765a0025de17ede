"""Assigns ids to requests, and makes OpenTelemetry spans if enabled.

The first program that handles a request assigns an id, or keeps the id that the
request has. All later programs pass it on. So the log lines of several programs
about one request have the same id.

The parent span of a call travels as W3C Trace Context (`traceparent`) in gRPC
metadata. Most programs of a cell run without a collector of traces. So without
`configure` or `use`, no function here imports OpenTelemetry or does more than
check one variable.
"""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import contextvars
import os
import re
import time
from typing import Any, TypeAlias

from saxml_ext.common import errors

Metadata: TypeAlias = tuple[tuple[str, str], ...]
Attributes: TypeAlias = Mapping[str, str | int | float]

# Users set these to get traces; see "SDK environment variables" in
# OpenTelemetry's specification.
_ENDPOINTS = (
  'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
  'OTEL_EXPORTER_OTLP_ENDPOINT',
)
_PROTOCOLS = (
  'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL',
  'OTEL_EXPORTER_OTLP_PROTOCOL',
)
_NAME = 'saxml_ext'

# The programs of a cell make these calls all the time, without a user's
# request. They get neither spans nor log lines.
BACKGROUND = frozenset(
  {'sax.Modelet/GetStatus', 'sax.Admin/Join', 'sax.Admin/WatchLoc'}
)

# The tracer is an opentelemetry.trace.Tracer, or None if spans are off.
_tracer: Any = None
# This is the key in gRPC metadata. In HTTP, it is spelled X-Request-Id.
REQUEST_ID = 'x-request-id'

# Ids are printable and short, because logs and headers contain them unchanged.
_VALID = re.compile(r'[!-~]{1,128}', re.ASCII)

_current_id: contextvars.ContextVar[str] = contextvars.ContextVar(
  'request_id', default=''
)
# Every call of the client sends this metadata. A program that calls on behalf
# of a user, such as a gateway, sets it once.
OUTGOING: contextvars.ContextVar[Metadata] = contextvars.ContextVar(
  'outgoing', default=()
)


def configure(service: str, endpoint: str = '') -> None:
  """Starts to send spans if the environment or an argument names a collector.

  Args:
    service: The name of this program, unless $OTEL_SERVICE_NAME overrides it.
    endpoint: The URL of an OTLP/gRPC collector, such as
      "http://localhost:4317". '' uses the URL in the environment, if there is
      one.

  Raises:
    InvalidArgument: The environment asks for a protocol other than gRPC.
  """
  if not is_enabled(endpoint):
    return
  for name in _PROTOCOLS:
    if os.environ.get(name, 'grpc') != 'grpc':
      raise errors.InvalidArgument(
        f'{name} is {os.environ[name]}, but traces are sent only by OTLP over'
        ' gRPC. Set it to grpc, and the endpoint to a gRPC port (4317)'
      )
  from opentelemetry.exporter.otlp.proto.grpc import trace_exporter
  from opentelemetry.sdk import resources
  from opentelemetry.sdk import trace
  from opentelemetry.sdk.trace import export

  name = os.environ.get('OTEL_SERVICE_NAME') or service
  provider = trace.TracerProvider(
    resource=resources.Resource.create({resources.SERVICE_NAME: name})
  )
  provider.add_span_processor(
    export.BatchSpanProcessor(
      trace_exporter.OTLPSpanExporter(endpoint=endpoint or None)
    )
  )
  use(provider)


def is_enabled(endpoint: str = '') -> bool:
  """Returns True if an argument or OpenTelemetry's variables ask for spans."""
  if os.environ.get('OTEL_SDK_DISABLED', '').lower() == 'true':
    return False
  if os.environ.get('OTEL_TRACES_EXPORTER') == 'none':
    return False
  return bool(endpoint) or any(os.environ.get(name) for name in _ENDPOINTS)


def use(provider: Any) -> None:
  """Starts to make spans with an opentelemetry TracerProvider; None stops."""
  global _tracer
  _tracer = provider.get_tracer(_NAME) if provider else None


def current() -> Any:
  """Returns the context to use as a later span's parent, or None if off."""
  if _tracer is None:
    return None
  from opentelemetry import context

  return context.get_current()


def carrier() -> Metadata:
  """Returns metadata that makes a call's spans children of the current one."""
  return () if _tracer is None else _inject(current())


def _inject(context: Any) -> Metadata:
  from opentelemetry.trace.propagation import tracecontext

  headers: dict[str, str] = {}
  tracecontext.TraceContextTextMapPropagator().inject(headers, context)
  return tuple(headers.items())


@contextlib.contextmanager
def client_call(
  name: str, attributes: Attributes, given: Metadata | None = None
) -> Iterator[Metadata]:
  """Assigns an id to a call to a server, and makes its span.

  The span does not become the current one, because the body may run in several
  threads, one after the other.

  Args:
    name: The name of the span, such as "lm.generate".
    attributes: The attributes of the span.
    given: The metadata that is sent anyway; by default, `OUTGOING`. A request
      id in it is kept.

  Yields:
    The metadata to add with `sending`: the request's id and, if spans are on,
    the ids of the span.
  """
  given = OUTGOING.get() if given is None else given
  named: Metadata = ()
  if not any(key == REQUEST_ID for key, _ in given):
    named = ((REQUEST_ID, current_id() or new_id()),)
  if _tracer is None or name in BACKGROUND:
    yield named
    return
  from opentelemetry import trace

  span = _tracer.start_span(
    name,
    kind=trace.SpanKind.CLIENT,
    attributes={
      'sax.request_id': dict((*given, *named))[REQUEST_ID],
      **attributes,
    },
  )
  with _ended(span):
    yield named + _inject(trace.set_span_in_context(span))


@contextlib.contextmanager
def server_call(
  name: str, metadata: Iterable[tuple[str, str | bytes]]
) -> Iterator[Any]:
  """Makes a span of a call that the server handles, as the current span.

  Args:
    name: The name of the method, such as "sax.Admin/Publish".
    metadata: The metadata of the call, which may name the client's span.

  Yields:
    The span, or None if spans are off.
  """
  if _tracer is None or name in BACKGROUND:
    yield None
    return
  from opentelemetry import trace
  from opentelemetry.trace.propagation import tracecontext

  sent = {k: v for k, v in metadata if isinstance(v, str)}
  parent = tracecontext.TraceContextTextMapPropagator().extract(sent)
  span = _tracer.start_span(name, parent, trace.SpanKind.SERVER)
  with _ended(span), trace.use_span(span, record_exception=False):
    yield span


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
  """Makes a span of the body, as a child of the current span."""
  if _tracer is None:
    yield
    return
  with _tracer.start_as_current_span(name):
    yield


def record(
  name: str,
  parent: Any,
  begin: float,
  end: float,
  attributes: Attributes | None = None,
) -> None:
  """Makes a span of work that is already finished.

  Args:
    name: The name of the span.
    parent: The result of `current` at the time when the work was submitted.
    begin: The start of the work, in monotonic seconds.
    end: The end of the work, in monotonic seconds.
    attributes: The attributes of the span.
  """
  if _tracer is None or parent is None:
    return
  epoch = time.time_ns() - time.monotonic_ns()
  span = _tracer.start_span(
    name, parent, attributes=attributes, start_time=epoch + int(begin * 1e9)
  )
  span.end(epoch + int(end * 1e9))


def failed(span: Any, text: str) -> None:
  """Marks a span as failed; does nothing if the span is None."""
  if span is not None:
    from opentelemetry.trace import status

    span.set_status(status.Status(status.StatusCode.ERROR, text))


@contextlib.contextmanager
def _ended(span: Any) -> Iterator[None]:
  """Ends a span after the body, and marks it as failed if the body raises."""
  try:
    yield
  except BaseException as e:
    failed(span, f'{type(e).__name__}: {e}')
    raise
  finally:
    span.end()


def ids() -> Metadata:
  """Returns the ids of the current trace and span, for log lines."""
  if _tracer is None:
    return ()
  from opentelemetry import trace

  context = trace.get_current_span().get_span_context()
  if not context.is_valid:
    return ()
  return (
    ('trace', trace.format_trace_id(context.trace_id)),
    ('span', trace.format_span_id(context.span_id)),
  )


def new_id() -> str:
  """Returns a unique id of 16 hexadecimal digits."""
  return os.urandom(8).hex()


def id_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
  """Returns the id in a call's metadata, or a new one if it is not valid."""
  for key, value in metadata:
    if key == REQUEST_ID and isinstance(value, str) and _VALID.fullmatch(value):
      return value
  return new_id()


def current_id() -> str:
  """Returns the id of the current request, or '' if there is none."""
  return _current_id.get()


def use_id(request_id: str) -> contextvars.Token[str]:
  """Makes an id the current one of this task or thread; see `restore_id`."""
  return _current_id.set(request_id)


def restore_id(token: contextvars.Token[str]) -> None:
  """Restores the id before `use_id`."""
  _current_id.reset(token)


@contextlib.contextmanager
def outgoing_call(name: str, model_id: str) -> Iterator[None]:
  """Gives the calls of its body one request id, and makes a span of them.

  A body that yields may end in another context. It must use `client_call`, and
  `sending` for its parts that do not yield.

  Args:
    name: The name of the span, such as "lm.generate".
    model_id: The model of the calls.
  """
  with client_call(name, {'sax.model': model_id}) as added, sending(added):
    yield


@contextlib.contextmanager
def sending(added: Metadata) -> Iterator[None]:
  """Adds metadata to the calls of its body."""
  token = OUTGOING.set((*OUTGOING.get(), *added))
  try:
    yield
  finally:
    OUTGOING.reset(token)
