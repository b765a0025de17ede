"""Spans of requests, as OpenTelemetry has them; free until asked for.

Which span a call belongs to travels as W3C Trace Context (`traceparent`) in
gRPC metadata. Nothing of OpenTelemetry is imported, and no function here does
more than look at one variable, unless `configure` or `use` was called: most
programs of a cell run without a collector of traces.
"""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import os
import time
from typing import Any, TypeAlias

from saxml_ext.common import errors
from saxml_ext.common.telemetry import request_id

Metadata: TypeAlias = tuple[tuple[str, str], ...]
Attributes: TypeAlias = Mapping[str, str | int | float]

# Set by whoever wants traces, see OpenTelemetry's "SDK environment variables".
_ENDPOINTS = (
  'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
  'OTEL_EXPORTER_OTLP_ENDPOINT',
)
_PROTOCOLS = (
  'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL',
  'OTEL_EXPORTER_OTLP_PROTOCOL',
)
_NAME = 'saxml_ext'

# What the programs of a cell ask each other all the time, on nobody's behalf:
# it has no spans, nor log lines of requests.
BACKGROUND = frozenset(
  {'sax.Modelet/GetStatus', 'sax.Admin/Join', 'sax.Admin/WatchLoc'}
)

# An opentelemetry.trace.Tracer; None: nobody wants spans.
_tracer: Any = None


def configure(service: str, endpoint: str = '') -> None:
  """Begins to send spans, if the environment or an argument says where to.

  Args:
    service: name of this program, unless $OTEL_SERVICE_NAME has another.
    endpoint: URL of an OTLP/gRPC collector, "http://localhost:4317"; '' takes
      that of the environment, if there is one.

  Raises:
    InvalidArgument: the environment asks for a protocol other than gRPC.
  """
  if not wanted(endpoint):
    return
  for name in _PROTOCOLS:
    if os.environ.get(name, 'grpc') != 'grpc':
      raise errors.InvalidArgument(
        f'{name}={os.environ[name]}: traces are sent by OTLP over gRPC only;'
        ' set it to grpc, and the endpoint to a port that speaks it (4317)'
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


def wanted(endpoint: str = '') -> bool:
  """Whether spans are to be sent, by OpenTelemetry's environment variables."""
  if os.environ.get('OTEL_SDK_DISABLED', '').lower() == 'true':
    return False
  if os.environ.get('OTEL_TRACES_EXPORTER') == 'none':
    return False
  return bool(endpoint) or any(os.environ.get(name) for name in _ENDPOINTS)


def use(provider: Any) -> None:
  """Makes spans with an opentelemetry TracerProvider; None: no more."""
  global _tracer
  _tracer = provider.get_tracer(_NAME) if provider else None


def current() -> Any:
  """What spans begun elsewhere may name as their parent; None if off."""
  if _tracer is None:
    return None
  from opentelemetry import context

  return context.get_current()


def carrier() -> Metadata:
  """Metadata that makes a call's spans children of the current one."""
  return () if _tracer is None else _inject(current())


def _inject(context: Any) -> Metadata:
  from opentelemetry.trace.propagation import tracecontext

  found: dict[str, str] = {}
  tracecontext.TraceContextTextMapPropagator().inject(found, context)
  return tuple(found.items())


@contextlib.contextmanager
def client_call(
  name: str, attributes: Attributes, given: Metadata = ()
) -> Iterator[Metadata]:
  """Names a call to a server, and makes a span of it.

  The span is not made the current one: the body may run in several threads,
  one after the other.

  Args:
    name: of the span, such as "lm.generate".
    attributes: of the span.
    given: metadata that is sent anyway; an id of the request there is kept.

  Yields:
    What to send besides: the request's id and, if spans are made, the span's.
  """
  named: Metadata = ()
  if not any(key == request_id.KEY for key, _ in given):
    named = ((request_id.KEY, request_id.current() or request_id.new()),)
  if _tracer is None or name in BACKGROUND:
    yield named
    return
  from opentelemetry import trace

  span = _tracer.start_span(
    name,
    kind=trace.SpanKind.CLIENT,
    attributes={
      'sax.request_id': dict((*given, *named))[request_id.KEY],
      **attributes,
    },
  )
  with _ended(span):
    yield named + _inject(trace.set_span_in_context(span))


@contextlib.contextmanager
def server_call(
  name: str, metadata: Iterable[tuple[str, str | bytes]]
) -> Iterator[Any]:
  """Makes a span of a call that is served, and the current one of the body.

  Args:
    name: "sax.Admin/Publish".
    metadata: of the call; may name the span of the client.

  Yields:
    The span, None if off.
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
  """Makes a span of a piece of work within the current one."""
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
  """Makes a span of what has been.

  Args:
    name: of the span.
    parent: what `current` gave when the work was handed over.
    begin: monotonic seconds.
    end: likewise.
    attributes: of the span.
  """
  if _tracer is None or parent is None:
    return
  epoch = time.time_ns() - time.monotonic_ns()
  span = _tracer.start_span(
    name,
    parent,
    attributes=attributes,
    start_time=epoch + int(begin * 1e9),
  )
  span.end(epoch + int(end * 1e9))


def failed(span: Any, text: str) -> None:
  """Marks a span as failed; None, where spans are not made, is no span."""
  if span is not None:
    from opentelemetry.trace import status

    span.set_status(status.Status(status.StatusCode.ERROR, text))


@contextlib.contextmanager
def _ended(span: Any) -> Iterator[None]:
  """Ends a span after the body, as failed if that raises."""
  try:
    yield
  except BaseException as e:
    failed(span, f'{type(e).__name__}: {e}')
    raise
  finally:
    span.end()


def ids() -> Metadata:
  """Trace and span of what is being handled here, for its log lines."""
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
