"""Aggregates a run's timeline to arrays that are small enough for a page."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from harness.loadgen import loadgen_log
from harness.rules import rounds

# The percentiles on the pages are the same as in LoadGen's summary.
PERCENTILES = (50.0, 90.0, 95.0, 97.0, 99.0, 99.9)

_MOST_WINDOWS = 120
# With fewer answers than this in a window, its rate is mostly noise.
_SAMPLES_OF_A_WINDOW = 10

_BINS = 60
_MOST_BINS_OF_COUNTS = 140


@dataclasses.dataclass(frozen=True)
class Samples:
  """A timeline as arrays of shape [N]. Times are in seconds.

  Attributes:
    issued: The time when LoadGen issued the sample.
    sent: The time when the system received the sample.
    first_token: The time of the first token, or NaN if it is unknown.
    done: The time of the answer.
    tokens: The number of generated tokens.
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
    """The time from the first issued sample to the last answer."""
    return float(self.done.max())

  @property
  def latency(self) -> np.ndarray:
    """The times [N] from issue to answer."""
    return self.done - self.issued

  @property
  def waiting(self) -> np.ndarray:
    """The times [N] from issue until the system received the sample."""
    return self.sent - self.issued

  @property
  def answering(self) -> np.ndarray:
    """The times [N] from the receipt in the system to the answer."""
    return self.done - self.sent


def from_times(times: Sequence[loadgen_log.Times]) -> Samples:
  """Converts a timeline to arrays.

  Raises:
    ValueError: The timeline is empty.
  """
  if not times:
    raise ValueError('The timeline has no samples. Run the job again.')
  return Samples(
    issued=np.array([sample.issued for sample in times]),
    sent=np.array([sample.sent for sample in times]),
    first_token=np.array(
      [
        np.nan if sample.first_token is None else sample.first_token
        for sample in times
      ]
    ),
    done=np.array([sample.done for sample in times]),
    tokens=np.array([sample.tokens for sample in times]),
  )


@dataclasses.dataclass(frozen=True)
class Windows:
  """Rates in windows of equal length that cover the whole run.

  Attributes:
    width: The length of a window in seconds.
    middles: The middles [W] of the windows, in seconds since the first issue.
      If the run is one window, this holds its start and its end, both with the
      same rates. A chart cannot draw a line through one point.
    samples_per_second: The answered samples per second [W].
    tokens_per_second: The tokens per second [W] of those samples.
    waiting: The mean seconds [W] from issue to receipt, of the samples that
      were answered in the window; NaN if there are none.
    answering: The mean seconds [W] from receipt to answer, of the same samples.
  """

  width: float
  middles: np.ndarray
  samples_per_second: np.ndarray
  tokens_per_second: np.ndarray
  waiting: np.ndarray
  answering: np.ndarray


def windows(samples: Samples) -> Windows:
  """Divides a run into at most 120 windows."""
  count = min(_MOST_WINDOWS, max(1, len(samples) // _SAMPLES_OF_A_WINDOW))
  # A run without measurable duration is one window of a microsecond.
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
    width, middles, *(np.resize(rate, len(middles)) for rate in rates)
  )


def query_latency(samples: Samples, scenario: str) -> np.ndarray:
  """Returns the latency of each query in seconds, as LoadGen measures it.

  A MultiStream query consists of several samples that LoadGen issues together.
  It ends with the last answer. In the other scenarios, each sample is a query.
  """
  if rounds.SCENARIOS[scenario].samples_per_query <= 1:
    return samples.latency
  issued, query = np.unique(samples.issued, return_inverse=True)
  ended = np.zeros(len(issued))
  np.maximum.at(ended, query, samples.done)
  return ended - issued


def percentile(values: np.ndarray, percent: float) -> float:
  """Returns the smallest value that `percent` of the values do not exceed."""
  return float(np.quantile(values, percent / 100, method='inverted_cdf'))


def distribution(
  values: np.ndarray, points: int = 300
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the cumulative distribution: values [P] and their percents [P].

  The top percent has more points than the rest, because bounds apply to it.
  """
  body = np.linspace(0.0, 99.0, points - points // 5, endpoint=False)
  percents = np.concatenate([body, np.linspace(99.0, 100.0, points // 5)])
  return np.quantile(values, percents / 100, method='inverted_cdf'), percents


def histogram(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the middles of the bins [B], and the number of values in each [B].

  Bins of integers have integer widths. With fractional widths, some bins would
  contain no integer.
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
  """Returns the indices of at most `limit` points to draw, in order of x.

  One point in 20 is among the highest, so that outliers stay visible. The
  others are taken at even steps along x, which preserves the density of the
  points.
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
