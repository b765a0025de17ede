"""Counts of values by size, cheap to fill and read by a scrape.

Not prometheus_client's: these belong to one load of a model and end with it,
where that would keep every label that was ever seen.
"""

import bisect
from collections.abc import Sequence
import dataclasses
import threading

# Seconds; from a token of a small model to an answer that waited its turn.
SECONDS = (
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
  1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
)  # fmt: skip
# Requests that are decoded together.
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


@dataclasses.dataclass(frozen=True)
class Snapshot:
  """What has been counted.

  Attributes:
    bounds: upper bounds of the buckets, ascending.
    counts: values up to each bound, and all in the end: one more than bounds.
    total: sum of the values.
  """

  bounds: tuple[float, ...]
  counts: tuple[int, ...]
  total: float


class Histogram:
  """Counts values by bucket; safe to use from several threads."""

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

  def snapshot(self) -> Snapshot:
    """What has been counted so far."""
    with self._lock:
      counts, total = list(self._counts), self._total
    for i in range(1, len(counts)):
      counts[i] += counts[i - 1]
    return Snapshot(self._bounds, tuple(counts), total)
