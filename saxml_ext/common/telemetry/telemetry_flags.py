"""Defines the flags for a program's logs and traces, and applies them."""

from absl import flags

from saxml_ext.common.telemetry import log_format
from saxml_ext.common.telemetry import traced_calls
from saxml_ext.common.telemetry import tracing

_LOG_FORMAT = flags.DEFINE_enum(
  'log_format',
  log_format.TEXT,
  [log_format.TEXT, log_format.JSON],
  'The format of log lines: text, or json for one JSON object per line.',
)
_LOG_REQUESTS = flags.DEFINE_enum(
  'log_requests',
  traced_calls.ERRORS,
  [traced_calls.ALL, traced_calls.ERRORS, traced_calls.NONE],
  'The calls to log: all, errors (except calls that were cancelled, sent to the'
  ' wrong server, or refused for a full queue) or none.',
)
_OTLP_ENDPOINT = flags.DEFINE_string(
  'otlp_endpoint',
  '',
  'The OTLP/gRPC collector of OpenTelemetry traces, such as'
  ' http://localhost:4317. Default: $OTEL_EXPORTER_OTLP_ENDPOINT, or else no'
  ' traces.',
)


def start(service: str) -> None:
  """Applies the flags. Call it once, after they are parsed.

  Args:
    service: The name of the program in traces, such as "sax-model-server".

  Raises:
    InvalidArgument: The settings of traces are invalid; see
      `tracing.configure`.
  """
  log_format.configure(_LOG_FORMAT.value)
  traced_calls.configure(_LOG_REQUESTS.value)
  tracing.configure(service, _OTLP_ENDPOINT.value)
