"""What can be read of energy: counters, and power over time."""

from collections.abc import Callable
import time
from typing import Protocol


class Source(Protocol):
  """One thing whose energy is measured.

  Attributes:
    name: such as "rapl:package-0".
    interval_secs: longest time between two calls of `update`.
    joules: since the first call of `update`.
  """

  name: str
  interval_secs: float
  joules: float

  def update(self) -> None:
    """Reads it. The first call begins the measurement.

    Raises:
      OSError: it cannot be read.
    """


class Counter:
  """A counter of energy that begins again at zero when it is full."""

  # A package of 500 W fills a counter of 262 kJ in nine minutes.
  interval_secs = 10.0

  def __init__(
    self, name: str, read: Callable[[], int], unit_joules: float, size: int = 0
  ):
    """Creates it.

    Args:
      name: see Source.
      read: gives the counter's value.
      unit_joules: energy of one unit.
      size: value after which it is zero again; 0: it never is.
    """
    self.name = name
    self.joules = 0.0
    self._read = read
    self._unit = unit_joules
    self._size = size
    self._last: int | None = None

  def update(self) -> None:
    value = self._read()
    if self._last is not None:
      step = value - self._last
      if step < 0 and self._size:
        step += self._size
      self.joules += step * self._unit
    self._last = value


class Power:
  """Power that is read now and then; energy is its integral."""

  interval_secs = 0.1

  def __init__(
    self,
    name: str,
    read: Callable[[], float],
    clock: Callable[[], float] = time.monotonic,
  ):
    """Creates it.

    Args:
      name: see Source.
      read: gives the power in watts.
      clock: gives the time in seconds.
    """
    self.name = name
    self.joules = 0.0
    self._read = read
    self._clock = clock
    self._last: tuple[float, float] | None = None

  def update(self) -> None:
    now, watts = self._clock(), self._read()
    if self._last is not None:
      before, watts_before = self._last
      self.joules += (now - before) * (watts + watts_before) / 2
    self._last = now, watts
