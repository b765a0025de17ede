"""The metrics of the gateway, for Prometheus.

Names of vLLM's are used where they mean the same, so that dashboards and
autoscalers made for it find them; the rest begins with sax_gateway_.
"""

from collections.abc import Iterable
import dataclasses
import time

import prometheus_client
from prometheus_client import exposition

# vLLM's buckets, in seconds.
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
      'HTTP requests answered, by route, model and status.',
      ('route', 'model_name', 'code'),
      **registry,
    )
    self.in_flight = prometheus_client.Gauge(
      'sax_gateway_requests_in_flight',
      'HTTP requests that wait for the cell.',
      **registry,
    )
    self._prompt_tokens = prometheus_client.Counter(
      'vllm:prompt_tokens',
      'Tokens of prompts that were answered.',
      model,
      **registry,
    )
    self._generation_tokens = prometheus_client.Counter(
      'vllm:generation_tokens', 'Tokens of answers.', model, **registry
    )
    self._success = prometheus_client.Counter(
      'vllm:request_success',
      'Answers that were finished, by why they ended.',
      ('model_name', 'finished_reason'),
      **registry,
    )
    self._first_token = prometheus_client.Histogram(
      'vllm:time_to_first_token_seconds',
      'From a streamed request to the first of its answer.',
      model,
      buckets=_FIRST_TOKEN_BUCKETS,
      **registry,
    )
    self._latency = prometheus_client.Histogram(
      'vllm:e2e_request_latency_seconds',
      'From a request to the end of its answer, where that succeeded.',
      model,
      buckets=_LATENCY_BUCKETS,
      **registry,
    )

  def text(self, accept: str) -> tuple[bytes, str]:
    """Returns what Prometheus reads, and its content type."""
    encode, content_type = exposition.choose_encoder(accept)
    return encode(self.registry), content_type

  def ended(self, record: 'Record', code: int) -> None:
    """Counts a request once it is answered, with its status."""
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
  """The counts of one request.

  Attributes:
    route: A path of this server; '' for one that it does not have.
    model: The id of a published model; '' before it is known to be one.
    begin: The time when the request came, on the monotonic clock.
    first: The time when its answer began, of streams.
    prompt_tokens: The tokens of all its prompts.
    completion_tokens: The tokens of all its answers.
    reasons: The reasons for which its answers ended.
    error: The status that a stream would have had, had it not begun before it
      failed; None if it did not fail.
  """

  route: str = ''
  model: str = ''
  begin: float = dataclasses.field(default_factory=time.monotonic)
  first: float | None = None
  prompt_tokens: int = 0
  completion_tokens: int = 0
  reasons: list[str] = dataclasses.field(default_factory=list)
  error: int | None = None

  def began(self) -> None:
    """Notes that a streamed answer begins."""
    if self.first is None:
      self.first = time.monotonic()

  def used(self, prompt_tokens: int, completion_tokens: int) -> None:
    """Adds tokens."""
    self.prompt_tokens += prompt_tokens
    self.completion_tokens += completion_tokens

  def finished(self, reasons: Iterable[str | None]) -> None:
    """Adds answers that ended; None for those that did not."""
    self.reasons.extend(reason for reason in reasons if reason)
