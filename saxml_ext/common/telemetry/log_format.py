"""Formats log lines as JSON objects for programs that collect and search logs.

Each line on stderr is one object:

    {"time": "2026-01-31T12:00:00.123456Z", "severity": "INFO", "message": ...}

A line may have more keys: request_id, trace and span of the current request,
and the keys that the code passes in `extra={'fields': {...}}`. Names and
severities are those of Google Cloud Logging.
"""

from collections.abc import Mapping
import datetime
import json
import logging
from typing import Any

from saxml_ext.common.telemetry import tracing

TEXT, JSON = 'text', 'json'


class JsonFormatter(logging.Formatter):
  """Formats a record as one line of JSON."""

  def format(self, record: logging.LogRecord) -> str:
    """Returns the line without its line end."""
    when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    line: dict[str, Any] = {
      'time': when.strftime('%Y-%m-%dT%H:%M:%S.%fZ'),
      'severity': record.levelname,
      'message': record.getMessage(),
      'source': f'{record.filename}:{record.lineno}',
    }
    if record.exc_info:
      line['exception'] = self.formatException(record.exc_info)
    if request_id := tracing.current_id():
      line['request_id'] = request_id
    line.update(tracing.ids())
    line.update(fields(record))
    return json.dumps(line, ensure_ascii=False, default=str)


def fields(record: logging.LogRecord) -> Mapping[str, Any]:
  """Returns the fields that the code passed in `extra={'fields': ...}`."""
  return getattr(record, 'fields', {})


def configure(form: str) -> None:
  """Sets the format of all later log lines of this process.

  Args:
    form: The format: "text" or "json".
  """
  if form == JSON:
    # absl is imported late, because saxutil uses this module and must start
    # fast.
    from absl import logging as absl_logging

    absl_logging.use_absl_handler()
    absl_logging.get_absl_handler().setFormatter(JsonFormatter())
