"""Log lines as JSON objects, for what collects and searches the logs of a cell.

One object a line, on stderr like the text that absl writes otherwise:

    {"time": "2026-01-31T12:00:00.123456Z", "severity": "INFO", "message": ...}

Further keys, where they are known: request_id, trace and span of the request
that is being handled, and what a line gives in `extra={'fields': {...}}`. Names
and severities are those that Google Cloud Logging and others know.
"""

from collections.abc import Mapping
import datetime
import json
import logging
from typing import Any

from saxml_ext.common.telemetry import tracing

TEXT, JSON = 'text', 'json'


class JsonFormatter(logging.Formatter):
  """Writes a record as one line of JSON."""

  def format(self, record: logging.LogRecord) -> str:
    """The line, without its end."""
    when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    line: dict[str, Any] = {
      'time': when.strftime('%Y-%m-%dT%H:%M:%S.%fZ'),
      'severity': record.levelname,
      'message': record.getMessage(),
      'source': f'{record.filename}:{record.lineno}',
    }
    if record.exc_info:
      line['exception'] = self.formatException(record.exc_info)
    if found := tracing.current_id():
      line['request_id'] = found
    line.update(tracing.ids())
    line.update(fields(record))
    return json.dumps(line, ensure_ascii=False, default=str)


def fields(record: logging.LogRecord) -> Mapping[str, Any]:
  """What a line gave in `extra={'fields': ...}`."""
  return getattr(record, 'fields', {})


def configure(form: str) -> None:
  """Chooses the form of all lines that this process logs from now on.

  Args:
    form: "text" or "json".
  """
  if form == JSON:
    # Not above: saxutil has the form too, and no time to import absl's.
    from absl import logging as absl_logging

    absl_logging.use_absl_handler()
    absl_logging.get_absl_handler().setFormatter(JsonFormatter())
