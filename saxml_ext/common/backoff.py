"""Pauses between attempts of what keeps failing, and logs each failure once."""

from collections.abc import Callable
import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Backoff:
  """Pauses that grow with every failure in a row, up to a limit.

  Attributes:
    first: seconds after the first failure.
    growth: factor from one pause to the next, at least 1.
    most: seconds that no pause exceeds, before jitter.
    jitter: largest part of a pause that is added or taken away at random, so
      that those who failed together do not all come back together; 0 for none.
  """

  first: float
  growth: float
  most: float
  jitter: float = 0.0

  def __post_init__(self):
    if self.first <= 0 or self.growth < 1 or self.most < self.first:
      raise ValueError(
        f'{self}: first must be positive, growth at least 1 and most at least'
        ' first'
      )
    if not 0 <= self.jitter < 1:
      raise ValueError(f'{self}: jitter must be at least 0 and less than 1')

  def pause(self, failures: int) -> float:
    """Seconds to wait after so many failures in a row; 0.0 after none."""
    if failures <= 0:
      return 0.0
    pause, left = self.first, failures - 1
    # Step by step: a power of a large number of failures would overflow.
    while left and pause < self.most and self.growth > 1:
      pause, left = pause * self.growth, left - 1
    pause = min(pause, self.most)
    if self.jitter:
      pause *= random.uniform(1 - self.jitter, 1 + self.jitter)
    return pause


class LogOnce:
  """Passes a text on to the log unless it is the one that came before it."""

  def __init__(self, log: Callable[..., None]):
    """Logs nothing yet.

    Args:
      log: where texts go, for example `logging.error`; called with a format
        and its argument.
    """
    self._log = log
    self._last = ''

  def __call__(self, text: str) -> None:
    """Logs a text, or notes with '' that there is nothing to say any more."""
    if text and text != self._last:
      self._log('%s', text)
    self._last = text
