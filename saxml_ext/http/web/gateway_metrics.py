"""Defines the gateway's metrics for Prometheus.

Metrics that also exist in vLLM have vLLM's names, so that its dashboards and
autoscalers find them. The names of other metrics begin with sax_gateway_.
"""

from collections.abc import Iterable
import dataclasses
import re
import time

import prometheus_client
from prometheus_client import exposition

# The buckets are those of vLLM, in seconds.
_FIRST_TOKEN_BUCKETS = (
  *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
  *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
)
_LATENCY_BUCKETS = (
  *(0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0),
  *(30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
)


class Metrics:
  """The counters of one gateway."""

  def __init__(self) -> None:
    self.registry = prometheus_client.CollectorRegistry()
    model = ('model_name',)
    registry = {'registry': self.registry}
    self._requests = prometheus_client.Counter(
      'sax_gateway_requests',
      'Answered HTTP requests, by route, model and status.',
      ('route', 'model_name', 'code'),
      **registry,
    )
    self.in_flight = prometheus_client.Gauge(
      'sax_gateway_requests_in_flight',
      'HTTP requests that wait for the cell.',
      **registry,
    )
    self._prompt_tokens = prometheus_client.Counter(
      'vllm:prompt_tokens', 'Tokens of answered prompts.', model, **registry
    )
    self._generation_tokens = prometheus_client.Counter(
      'vllm:generation_tokens', 'Tokens of answers.', model, **registry
    )
    self._success = prometheus_client.Counter(
      'vllm:request_success',
      'Finished answers, by finish reason.',
      ('model_name', 'finished_reason'),
      **registry,
    )
    self._first_token = prometheus_client.Histogram(
      'vllm:time_to_first_token_seconds',
      'Seconds from a streamed request to the start of its answer.',
      model,
      buckets=_FIRST_TOKEN_BUCKETS,
      **registry,
    )
    self._latency = prometheus_client.Histogram(
      'vllm:e2e_request_latency_seconds',
      'Seconds from a request to the end of its successful answer.',
      model,
      buckets=_LATENCY_BUCKETS,
      **registry,
    )

  def text(self, accept: str) -> tuple[bytes, str]:
    """Returns the metrics in Prometheus's format, and the content type."""
    encode, content_type = exposition.choose_encoder(accept)
    return encode(self.registry), content_type

  def ended(self, record: 'Record', code: int) -> None:
    """Counts a request and its status after its answer."""
    self._requests.labels(record.route, record.model, str(code)).inc()
    if record.model and code == 200:
      latency = time.monotonic() - record.begin
      self._latency.labels(record.model).observe(latency)
      if record.first is not None:
        waited = record.first - record.begin
        self._first_token.labels(record.model).observe(waited)
      self._prompt_tokens.labels(record.model).inc(record.prompt_tokens)
      self._generation_tokens.labels(record.model).inc(record.completion_tokens)
      for reason in record.reasons:
        self._success.labels(record.model, reason).inc()


@dataclasses.dataclass
class Record:
  """The measured values of one request.

  Attributes:
    route: The path of a route; '' if this server has no such route.
    model: The public name of a published model; '' before it is known.
    model_id: The id of the model; '' before it is known.
    name: The name by which the client knows the model.
    begin: The time when the request arrived, on the monotonic clock.
    first: The time when a streamed answer began.
    prompt_tokens: The number of tokens of all its prompts.
    completion_tokens: The number of tokens of all its answers.
    reasons: The finish reasons of its answers.
    error: The status of a stream that failed after it began; None otherwise.
  """

  route: str = ''
  model: str = ''
  model_id: str = ''
  name: str = ''
  begin: float = dataclasses.field(default_factory=time.monotonic)
  first: float | None = None
  prompt_tokens: int = 0
  completion_tokens: int = 0
  reasons: list[str] = dataclasses.field(default_factory=list)
  error: int | None = None

  def public(self, message: str) -> str:
    """Returns a message with the client's name of the model, not the id."""
    if not self.model_id:
      return message
    pattern = re.escape(self.model_id) + r'(?![\w-])'
    return re.sub(pattern, lambda _: self.name, message)

  def began(self) -> None:
    """Records the time when a streamed answer begins."""
    if self.first is None:
      self.first = time.monotonic()

  def used(self, prompt_tokens: int, completion_tokens: int) -> None:
    """Adds token counts."""
    self.prompt_tokens += prompt_tokens
    self.completion_tokens += completion_tokens

  def finished(self, reasons: Iterable[str | None]) -> None:
    """Adds the finish reasons of answers, None for answers that did not end."""
    self.reasons.extend(reason for reason in reasons if reason)
