"""Defines the figures of a reliability test, with their bounds."""

from collections.abc import Sequence
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Figure:
  """A figure of a row.

  Attributes:
    name: The name of the figure.
    value: The value in `unit`.
    unit: The unit, such as "s" or "MB"; '' for a plain count.
    most: The upper bound; None for no bound.
    least: The lower bound; None for no bound.
  """

  name: str
  value: float
  unit: str = ''
  most: float | None = None
  least: float | None = None

  @property
  def met(self) -> bool:
    """True if the value is within its bounds."""
    return (self.most is None or self.value <= self.most) and (
      self.least is None or self.value >= self.least
    )

  @property
  def goal(self) -> str:
    """The bounds as readable text; '' without any bound."""
    if self.most is not None and self.most == self.least:
      return self._with_unit(self.most)
    parts = []
    if self.least is not None:
      parts.append(f'at least {self._with_unit(self.least)}')
    if self.most is not None:
      most = self._with_unit(self.most)
      parts.append(f'at most {most}' if self.most else most)
    return ', '.join(parts)

  @property
  def reached(self) -> str:
    """The value as readable text."""
    return self._with_unit(self.value)

  def _with_unit(self, value: float) -> str:
    whole = float(value).is_integer()
    text = f'{value:,.0f}' if whole or abs(value) >= 1000 else f'{value:.3g}'
    return f'{text} {self.unit}'.strip()


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The result of a row.

  Attributes:
    row: The key of the row in the table.
    form: The form of the test, "full" or "short".
    figures: The figures in the order of the table; empty if the row failed.
    error: The reason of a failure; '' if there was none.
    date: The time of the start, UTC, ISO 8601.
    seconds: The duration in seconds.
    commit: The commit of the repository, with "+" if files were changed since;
      '' if unknown.
    machine: The machine and its load.
  """

  row: str
  form: str
  figures: tuple[Figure, ...]
  error: str = ''
  date: str = ''
  seconds: float = 0.0
  commit: str = ''
  machine: str = ''

  @property
  def met(self) -> bool:
    """True if the row did not fail and every figure is within its bounds."""
    return not self.error and all(f.met for f in self.figures)

  def to_json(self) -> dict[str, Any]:
    """Returns the result in the format of the file."""
    return dataclasses.asdict(self)


def from_json(value: dict[str, Any]) -> Outcome:
  """Returns the outcome from the value of `Outcome.to_json`.

  Raises:
    TypeError, KeyError: The value is not an outcome.
  """
  figures = tuple(Figure(**figure) for figure in value['figures'])
  return Outcome(**{**value, 'figures': figures})


def none_of(name: str, items: Sequence[Any]) -> Figure:
  """Returns a figure that counts events that must never happen."""
  return Figure(name, len(items), most=0)


def all_of(name: str, count: int, total: int) -> Figure:
  """Returns a figure that counts events that must happen every time."""
  return Figure(name, count, least=total, most=total)
