"""Figures of one method of one model: of the last minute, and in all."""

import bisect
import collections
from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import math
import threading
import time

_WINDOW = 60
_SAMPLES = 100
_BATCHES = 10
# Seconds; from a token of a small model to an answer that waited its turn.
SECONDS = (
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
  1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
)  # fmt: skip
# Requests that are decoded together.
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


@dataclasses.dataclass(frozen=True)
class Counts:
  """What a histogram has counted.

  Attributes:
    bounds: upper bounds of the buckets, ascending.
    counts: values up to each bound, and all in the end: one more than bounds.
    total: sum of the values.
  """

  bounds: tuple[float, ...]
  counts: tuple[int, ...]
  total: float


class Histogram:
  """Counts values by bucket; safe to use from several threads.

  prometheus_client's would keep every label that was ever seen. These belong to
  one load of a model and end with it.
  """

  def __init__(self, bounds: Sequence[float] = SECONDS):
    """Takes upper bounds of buckets, ascending."""
    self._bounds = tuple(bounds)
    self._counts = [0] * (len(bounds) + 1)
    self._total = 0.0
    self._lock = threading.Lock()

  def observe(self, value: float) -> None:
    """Counts a value."""
    bucket = bisect.bisect_left(self._bounds, value)
    with self._lock:
      self._counts[bucket] += 1
      self._total += value

  def snapshot(self) -> Counts:
    """Returns what has been counted so far."""
    with self._lock:
      counts, total = list(self._counts), self._total
    return Counts(self._bounds, tuple(itertools.accumulate(counts)), total)


@dataclasses.dataclass
class _Second:
  """What happened within one second of the monotonic clock."""

  second: int
  successes: int = 0
  errors: int = 0
  latency_sum: float = 0.0


@dataclasses.dataclass(frozen=True)
class Snapshot:
  """Rates per second, latencies in seconds; None without a success.

  Attributes:
    successes_per_second: over the window of 60 s.
    errors_per_second: over the same.
    mean, p50, p95, p99: latencies of successes; percentiles are of the newest
      100 at most.
    batch_sizes: requests decoded together, the last 10 figures.
    expired: requests since the start whose deadline passed in the queue.
  """

  successes_per_second: float
  errors_per_second: float
  mean: float | None
  p50: float | None
  p95: float | None
  p99: float | None
  batch_sizes: tuple[int, ...]
  expired: int


@dataclasses.dataclass(frozen=True)
class Load:
  """How much a model has to do.

  Attributes:
    queued: requests that wait.
    running: requests in slots.
    slots: that there are.
  """

  queued: int
  running: int
  slots: int


@dataclasses.dataclass(frozen=True)
class Totals:
  """What was counted since the model was loaded.

  Attributes:
    codes: calls that ended, by the name of their status.
    expired: requests whose deadline passed in the queue.
    prompt_tokens: of requests that were answered.
    output_tokens: of their answers; where there are several, of the best one.
    histograms: by name, see `MethodStats.answered`; seconds, but for
      "batch_size": "latency", "queue", "first_token" and "per_token".
  """

  codes: Mapping[str, int]
  expired: int
  prompt_tokens: int
  output_tokens: int
  histograms: Mapping[str, Counts]


class MethodStats:
  """Counts calls of one method; safe to use from several threads."""

  def __init__(self, clock=time.monotonic):
    self._clock = clock
    self._lock = threading.Lock()
    self._seconds: collections.deque[_Second] = collections.deque()
    self._latencies: collections.deque[tuple[int, float]] = collections.deque(
      maxlen=_SAMPLES
    )
    self._batches: collections.deque[int] = collections.deque(maxlen=_BATCHES)
    self._expired = 0
    self._codes: collections.Counter[str] = collections.Counter()
    self._tokens = [0, 0]
    self._histograms = {
      name: Histogram()
      for name in ('latency', 'queue', 'first_token', 'per_token')
    }
    self._histograms['batch_size'] = Histogram(SIZES)

  def succeeded(self, latency: float) -> None:
    """Counts an answered call that took `latency` seconds."""
    self._histograms['latency'].observe(latency)
    with self._lock:
      self._codes['OK'] += 1
      now = self._current()
      now.successes += 1
      now.latency_sum += latency
      self._latencies.append((now.second, latency))

  def failed(self, code: str = 'UNKNOWN') -> None:
    """Counts a call that ended with an error, a status code's name."""
    with self._lock:
      self._codes[code] += 1
      self._current().errors += 1

  def expired(self) -> None:
    """Counts a request that was dropped from the queue at its deadline."""
    with self._lock:
      self._expired += 1

  def batch(self, size: int) -> None:
    """Notes how many requests are decoded together."""
    self._histograms['batch_size'].observe(size)
    with self._lock:
      self._batches.append(size)

  def answered(
    self,
    *,
    prompt_tokens: int,
    output_tokens: int,
    queued: float,
    first_token: float | None,
    in_slot: float,
  ) -> None:
    """Counts a request that the engine has answered.

    Args:
      prompt_tokens: of its prompt.
      output_tokens: of its answer, the best one if there are several.
      queued: seconds that it waited for a slot.
      first_token: seconds until there was news of its answer; None if nobody
        wanted to know before the end.
      in_slot: seconds from its admission to a slot to its answer.
    """
    self._histograms['queue'].observe(queued)
    if first_token is not None:
      self._histograms['first_token'].observe(first_token)
    if output_tokens:
      self._histograms['per_token'].observe(in_slot / output_tokens)
    with self._lock:
      self._tokens[0] += prompt_tokens
      self._tokens[1] += output_tokens

  def totals(self) -> Totals:
    """What was counted since the start."""
    with self._lock:
      codes, expired = dict(self._codes), self._expired
      prompt, output = self._tokens
    found = {name: h.snapshot() for name, h in self._histograms.items()}
    return Totals(codes, expired, prompt, output, found)

  def snapshot(self) -> Snapshot:
    """The figures as of now."""
    with self._lock:
      oldest = self._current().second - _WINDOW
      successes = sum(s.successes for s in self._seconds)
      failures = sum(s.errors for s in self._seconds)
      total = sum(s.latency_sum for s in self._seconds)
      sample = sorted(secs for when, secs in self._latencies if when > oldest)
      return Snapshot(
        successes_per_second=successes / _WINDOW,
        errors_per_second=failures / _WINDOW,
        mean=total / successes if successes else None,
        p50=_percentile(sample, 50),
        p95=_percentile(sample, 95),
        p99=_percentile(sample, 99),
        batch_sizes=tuple(self._batches),
        expired=self._expired,
      )

  def _current(self) -> _Second:
    """The record of this second; older than the window ones are dropped."""
    second = int(self._clock())
    if not self._seconds or self._seconds[-1].second != second:
      self._seconds.append(_Second(second))
    while self._seconds[0].second <= second - _WINDOW:
      self._seconds.popleft()
    return self._seconds[-1]


def _percentile(ordered: list[float], percent: int) -> float | None:
  """Nearest-rank percentile of an ascending list."""
  if not ordered:
    return None
  rank = math.ceil(percent / 100 * len(ordered))
  return ordered[max(rank, 1) - 1]
