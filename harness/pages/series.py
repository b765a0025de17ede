"""Aggregates of a run's timeline that are small enough for a page."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from harness.loadgen import timeline
from harness.rules import rounds

# Percentiles that the pages tell, those of LoadGen's summary.
PERCENTILES = (50.0, 90.0, 95.0, 97.0, 99.0, 99.9)

_MOST_WINDOWS = 120
# Fewer answers than this in a window show chance rather than speed.
_SAMPLES_OF_A_WINDOW = 10

_BINS = 60
_MOST_BINS_OF_COUNTS = 140


@dataclasses.dataclass(frozen=True)
class Samples:
  """A timeline as arrays, all of shape [N]; times in seconds.

  Attributes:
    issued: when LoadGen asked for the sample.
    sent: when the system got it.
    first_token: when its first token was there; NaN where nobody knows.
    done: when its answer was there.
    tokens: how many were generated.
  """

  issued: np.ndarray
  sent: np.ndarray
  first_token: np.ndarray
  done: np.ndarray
  tokens: np.ndarray

  def __len__(self) -> int:
    return len(self.done)

  @property
  def seconds(self) -> float:
    """From the first sample issued to the last answered."""
    return float(self.done.max())

  @property
  def latency(self) -> np.ndarray:
    """[N] from issue to answer."""
    return self.done - self.issued

  @property
  def waiting(self) -> np.ndarray:
    """[N] from issue until the system had the sample."""
    return self.sent - self.issued

  @property
  def answering(self) -> np.ndarray:
    """[N] from the system's receipt to the answer."""
    return self.done - self.sent


def from_times(times: Sequence[timeline.Times]) -> Samples:
  """Arrays of a timeline.

  Raises:
    ValueError: it is empty.
  """
  if not times:
    raise ValueError('the timeline holds no sample; run the job anew')
  return Samples(
    issued=np.array([each.issued for each in times]),
    sent=np.array([each.sent for each in times]),
    first_token=np.array(
      [
        np.nan if each.first_token is None else each.first_token
        for each in times
      ]
    ),
    done=np.array([each.done for each in times]),
    tokens=np.array([each.tokens for each in times]),
  )


@dataclasses.dataclass(frozen=True)
class Windows:
  """Rates in windows of equal length that cover the whole run.

  Attributes:
    width: of a window, in seconds.
    middles: [W] of the windows, in seconds since the first issue. A run that
      is one window has its beginning and its end here, and equal rates at both,
      because a chart draws no line through one point.
    samples_per_second: [W] samples answered.
    tokens_per_second: [W] tokens of those samples.
    waiting: [W] mean seconds from issue to the system, of the samples that
      were answered in the window; NaN where none was.
    answering: [W] mean seconds from the system's receipt to the answer.
  """

  width: float
  middles: np.ndarray
  samples_per_second: np.ndarray
  tokens_per_second: np.ndarray
  waiting: np.ndarray
  answering: np.ndarray


def windows(samples: Samples) -> Windows:
  """Divides a run into windows, at most 120 of them."""
  count = min(_MOST_WINDOWS, max(1, len(samples) // _SAMPLES_OF_A_WINDOW))
  # A run that took no measurable time is one window of a microsecond.
  edges = np.linspace(0.0, max(samples.seconds, 1e-6), count + 1)
  width = float(edges[1])

  def total(weights: np.ndarray | None = None) -> np.ndarray:
    return np.histogram(samples.done, edges, weights=weights)[0]

  middles = edges if count == 1 else (edges[:-1] + edges[1:]) / 2
  answered = total()
  some = np.where(answered > 0, answered, np.nan)
  rates = (
    answered / width,
    total(samples.tokens) / width,
    total(samples.waiting) / some,
    total(samples.answering) / some,
  )
  return Windows(
    width, middles, *(np.resize(each, len(middles)) for each in rates)
  )


def query_latency(samples: Samples, scenario: str) -> np.ndarray:
  """Latency of every query in seconds, as LoadGen counts it.

  A MultiStream query holds several samples, which LoadGen issues at one time,
  and ends with the last of them. In the other scenarios each sample counts.
  """
  if rounds.SCENARIOS[scenario].samples_per_query <= 1:
    return samples.latency
  issued, query = np.unique(samples.issued, return_inverse=True)
  ended = np.zeros(len(issued))
  np.maximum.at(ended, query, samples.done)
  return ended - issued


def percentile(values: np.ndarray, percent: float) -> float:
  """The smallest value that `percent` of the values do not exceed."""
  return float(np.quantile(values, percent / 100, method='inverted_cdf'))


def distribution(
  values: np.ndarray, points: int = 300
) -> tuple[np.ndarray, np.ndarray]:
  """The cumulative distribution: values [P], and percents [P] at most those.

  The upper end, which decides about bounds, has more points than the rest.
  """
  body = np.linspace(0.0, 99.0, points - points // 5, endpoint=False)
  percents = np.concatenate([body, np.linspace(99.0, 100.0, points // 5)])
  return np.quantile(values, percents / 100, method='inverted_cdf'), percents


def histogram(
  values: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Middles of bins [B] and how many values lie in each [B].

  Whole numbers get bins of whole numbers, so that no bin is empty by its
  limits alone.
  """
  low, high = float(values.min()), float(values.max())
  if np.issubdtype(values.dtype, np.integer):
    step = max(1, int(np.ceil((high - low + 1) / _MOST_BINS_OF_COUNTS)))
    edges = np.arange(low - 0.5, high + step + 0.5, step)
  else:
    edges = np.linspace(low, max(high, low + 1e-6), _BINS + 1)
  counts, edges = np.histogram(values, edges)
  return (edges[:-1] + edges[1:]) / 2, counts


def thin(x: np.ndarray, y: np.ndarray, limit: int) -> np.ndarray:
  """Which points of a scatter to draw, in order of x: at most `limit`.

  One in twenty is among the highest, so that no outlier is lost; the others are
  taken at even steps along x, which keeps the density of the cloud.
  """
  order = np.argsort(x, kind='stable')
  if len(order) <= limit:
    return order
  highest = np.argpartition(y, -(limit // 20))[-(limit // 20) :]
  steps = np.linspace(0, len(order) - 1, limit - len(highest)).astype(int)
  kept = np.zeros(len(order), bool)
  kept[highest] = True
  kept[order[steps]] = True
  return order[kept[order]]
