"""Figures of one contender over the rounds."""

from collections.abc import Sequence
import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Sample:
  """One run over a set of requests.

  Attributes:
    tokens: generated, the end-of-sequence token not counted.
    cpu_seconds: user and system time of the worker's process.
    wall_seconds: the same by the clock.
    peak_rss_bytes: the process's largest resident size since its start,
      loading and compiling included.
  """

  tokens: int
  cpu_seconds: float
  wall_seconds: float
  peak_rss_bytes: int

  @property
  def rate(self) -> float:
    """Tokens per CPU second."""
    return self.tokens / self.cpu_seconds


@dataclasses.dataclass(frozen=True)
class Spread:
  """Median, quartiles and extremes of some values."""

  median: float
  low: float
  high: float
  least: float
  most: float

  @classmethod
  def of(cls, values: Sequence[float]) -> 'Spread':
    if len(values) > 1:
      low, _, high = statistics.quantiles(values, n=4, method='inclusive')
    else:
      low = high = values[0]
    return cls(statistics.median(values), low, high, min(values), max(values))


def rates(samples: Sequence[Sample]) -> Spread:
  """Tokens per CPU second."""
  return Spread.of([s.rate for s in samples])


def ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float:
  """How many times as fast ours is: the median of the rounds' ratios.

  Runs of one round stand side by side, so what slows the machine for a while
  slows both.
  """
  return statistics.median(
    a.rate / b.rate for a, b in zip(ours, theirs, strict=True)
  )


def median(samples: Sequence[Sample], field: str) -> float:
  return statistics.median(getattr(s, field) for s in samples)
