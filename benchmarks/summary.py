"""Summarizes the measurements of one contender over the rounds."""

from collections.abc import Sequence
import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Sample:
  """A run over a set of requests.

  Attributes:
    tokens: The generated tokens, without end-of-sequence tokens.
    cpu_seconds: The user and system time of the worker's process.
    wall_seconds: The elapsed time.
    peak_rss_bytes: The peak resident size of the process since its start,
      including loading and compiling.
  """

  tokens: int
  cpu_seconds: float
  wall_seconds: float
  peak_rss_bytes: int

  @property
  def rate(self) -> float:
    """The throughput in tokens per CPU second."""
    return self.tokens / self.cpu_seconds


@dataclasses.dataclass(frozen=True)
class Spread:
  """The median, the quartiles and the extremes of several values."""

  median: float
  low: float
  high: float
  least: float
  most: float

  @classmethod
  def from_values(cls, values: Sequence[float]) -> 'Spread':
    if len(values) > 1:
      low, _, high = statistics.quantiles(values, n=4, method='inclusive')
    else:
      low = high = values[0]
    return cls(statistics.median(values), low, high, min(values), max(values))


def rates(samples: Sequence[Sample]) -> Spread:
  """Returns the distribution of the tokens per CPU second."""
  return Spread.from_values([s.rate for s in samples])


def ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float:
  """Returns the median of the rounds' ratios of our speed to theirs.

  The runs of one round follow each other, so a slow phase of the machine
  affects both.
  """
  return statistics.median(
    a.rate / b.rate for a, b in zip(ours, theirs, strict=True)
  )


def median(samples: Sequence[Sample], field: str) -> float:
  return statistics.median(getattr(s, field) for s in samples)
