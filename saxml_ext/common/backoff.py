"""Computes pauses between retries, and logs each distinct failure once."""

from collections.abc import Callable
import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Backoff:
  """Pauses that grow with every failure in a row, up to a limit.

  Attributes:
    first: The pause after the first failure, in seconds.
    growth: The factor from one pause to the next, at least 1.
    most: The longest pause before jitter, in seconds.
    jitter: The largest part of a pause that is added or subtracted at random,
      so that clients that failed together do not all retry together. 0 adds
      none.
  """

  first: float
  growth: float
  most: float
  jitter: float = 0.0

  def __post_init__(self):
    if self.first <= 0 or self.growth < 1 or self.most < self.first:
      raise ValueError(
        f'{self}: first must be positive, growth at least 1, and most at'
        ' least first'
      )
    if not 0 <= self.jitter < 1:
      raise ValueError(f'{self}: jitter must be at least 0 and less than 1')

  def pause(self, failures: int) -> float:
    """Returns the pause in seconds after `failures` failures in a row.

    The pause is 0.0 after no failure.
    """
    if failures <= 0:
      return 0.0
    pause, left = self.first, failures - 1
    # The pause grows in a loop because a large power of `growth` would
    # overflow.
    while left and pause < self.most and self.growth > 1:
      pause, left = pause * self.growth, left - 1
    pause = min(pause, self.most)
    if self.jitter:
      pause *= random.uniform(1 - self.jitter, 1 + self.jitter)
    return pause


class LogOnce:
  """Logs a text unless it equals the previous one."""

  def __init__(self, log: Callable[..., None]):
    """Logs nothing yet.

    Args:
      log: The function that logs, for example `logging.error`. It is called
        with a format and its argument.
    """
    self._log = log
    self._last = ''

  def __call__(self, text: str) -> None:
    """Logs a text if it is new. '' means that the failure is over."""
    if text and text != self._last:
      self._log('%s', text)
    self._last = text
