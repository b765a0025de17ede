"""Statistics of a method of a model, for the last minute and in total."""

import asyncio
import bisect
import collections
from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import math
import threading
import time

from absl import logging

_WINDOW = 60
_SAMPLES = 100
_BATCHES = 10
# Bounds in seconds, from one token of a small model to an answer after a long
# wait in the queue.
SECONDS = (
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
  1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
)  # fmt: skip
# Bounds of the number of requests that are decoded together.
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


@dataclasses.dataclass(frozen=True)
class Counts:
  """The state of a histogram.

  Attributes:
    bounds: The upper bounds of the buckets, ascending.
    counts: The number of values up to each bound, and finally of all values.
    total: The sum of the values.
  """

  bounds: tuple[float, ...]
  counts: tuple[int, ...]
  total: float


class Histogram:
  """Counts values by bucket; safe to use from several threads.

  A histogram of prometheus_client would keep every label forever. These
  histograms belong to one load of a model and end with it.
  """

  def __init__(self, bounds: Sequence[float] = SECONDS):
    """Creates an empty histogram; `bounds` are upper bounds, ascending."""
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
    """Returns the current counts."""
    with self._lock:
      counts, total = list(self._counts), self._total
    return Counts(self._bounds, tuple(itertools.accumulate(counts)), total)


@dataclasses.dataclass
class _Second:
  """The events within one second of the monotonic clock."""

  second: int
  successes: int = 0
  errors: int = 0
  latency_sum: float = 0.0


@dataclasses.dataclass(frozen=True)
class Snapshot:
  """Rates per second, and latencies in seconds (None without a success).

  Attributes:
    successes_per_second: The rate of successes over the window of 60 s.
    errors_per_second: The rate of errors over the window of 60 s.
    mean: The mean latency of successes.
    p50: The median latency of the newest successes, at most 100.
    p95: The 95th percentile of the same latencies.
    p99: The 99th percentile of the same latencies.
    batch_sizes: The last 10 numbers of requests decoded together.
    expired: The number of requests whose deadline passed in the queue, since
      the start.
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
  """The current load of a model.

  Attributes:
    queued: The number of waiting requests.
    running: The number of requests in slots.
    slots: The number of slots.
  """

  queued: int
  running: int
  slots: int


@dataclasses.dataclass(frozen=True)
class Totals:
  """The counts since the model was loaded.

  Attributes:
    codes: The number of finished calls, by the name of their status.
    expired: The number of requests whose deadline passed in the queue.
    prompt_tokens: The tokens of the prompts of answered requests.
    output_tokens: The tokens of their answers; of several answers, only the
      best one counts.
    histograms: The histograms by name: "latency", "queue", "first_token" and
      "per_token" in seconds, and "batch_size". See `MethodStats.answered`.
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
    """Counts a call that failed with the status code of the given name."""
    with self._lock:
      self._codes[code] += 1
      self._current().errors += 1

  def expired(self) -> None:
    """Counts a request that was dropped from the queue at its deadline."""
    with self._lock:
      self._expired += 1

  def batch(self, size: int) -> None:
    """Records the number of requests that are decoded together."""
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
      prompt_tokens: The number of tokens of the prompt.
      output_tokens: The number of tokens of the answer, or of the best one.
      queued: The seconds that it waited for a slot.
      first_token: The seconds until the first progress report; None if the
        request did not ask for progress.
      in_slot: The seconds between its admission to a slot and its answer.
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
    """Returns the counts since the start."""
    with self._lock:
      codes, expired = dict(self._codes), self._expired
      prompt, output = self._tokens
    histograms = {name: h.snapshot() for name, h in self._histograms.items()}
    return Totals(codes, expired, prompt, output, histograms)

  def snapshot(self) -> Snapshot:
    """Returns the statistics of the last minute."""
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
    """Returns the record of this second; drops those before the window."""
    second = int(self._clock())
    if not self._seconds or self._seconds[-1].second != second:
      self._seconds.append(_Second(second))
    while self._seconds[0].second <= second - _WINDOW:
      self._seconds.popleft()
    return self._seconds[-1]


def _percentile(ordered: list[float], percent: int) -> float | None:
  """Returns the nearest-rank percentile of an ascending list."""
  if not ordered:
    return None
  rank = math.ceil(percent / 100 * len(ordered))
  return ordered[max(rank, 1) - 1]


class Activity:
  """Logs the first call of a model, and then counts once a minute.

  All methods are called on one event loop.
  """

  def __init__(self):
    self._begun = self._ended = self._failed = 0
    self._timer: asyncio.TimerHandle | None = None

  def begin(self, model: str, method: str) -> None:
    """Counts a call that begins."""
    if not self._begun:
      logging.info('%s: first request, %s', model, method)
    self._begun += 1
    if self._timer is None:
      self._start_timer(model)

  def end(self, failed: bool) -> None:
    """Counts a call that ends."""
    self._ended += 1
    self._failed += failed

  def _start_timer(self, model: str) -> None:
    counts = self._ended, self._failed
    self._timer = asyncio.get_running_loop().call_later(
      _WINDOW, self._report, model, *counts
    )

  def _report(self, model: str, ended: int, failed: int) -> None:
    """Logs the calls since the timer was started, and starts it again."""
    self._timer = None
    running = self._begun - self._ended
    if running or self._ended > ended:
      answered = self._ended - self._failed - (ended - failed)
      logging.info(
        '%s: requests in the last %d s: %d answered, %d failed, %d running',
        *(model, _WINDOW, answered, self._failed - failed, running),
      )
      self._start_timer(model)
