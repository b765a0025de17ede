"""Judges an accuracy run, and compares it with a reference if there is one."""

import abc
import dataclasses
from typing import Any, Generic, Protocol, TypeVar

from saxml_ext.common.pages import text_columns


class Scores(Protocol):
  """The figures of a run. Implementations are dataclasses."""

  @property
  def line(self) -> str:
    """The line of accuracy.txt with the figures."""


_S = TypeVar('_S', bound=Scores)


@dataclasses.dataclass(frozen=True)
class Judgement(abc.ABC, Generic[_S]):
  """The scores of an accuracy run, and of a reference if there is one.

  Attributes:
    ours: The scores of the run.
    reference: The scores of the reference, or None if there is none.
    identical: The number of answers that are identical to the reference's.
  """

  ours: _S
  reference: _S | None
  identical: int

  @property
  def metrics(self) -> dict[str, float]:
    """The figures of the run, by their name in the reference's evaluation."""
    return _figures(self.ours)

  @property
  def line(self) -> str:
    """The line of accuracy.txt with the figures."""
    return self.ours.line

  @property
  def reference_metrics(self) -> dict[str, float] | None:
    """The figures of the reference, or None without one."""
    return _figures(self.reference) if self.reference else None

  @property
  def passed(self) -> bool:
    """True if there are no problems."""
    return not self.problems()

  @property
  def table(self) -> str:
    """The figures of the run and the reference, and the identical answers."""
    ours = {k: v for k, v in self.metrics.items() if v is not None}
    theirs = self.reference_metrics
    rows: list[tuple[str, ...]]
    if theirs is None:
      rows = [('', 'this run')]
      rows += [(name, figure(value)) for name, value in ours.items()]
      return (
        text_columns.render(rows) + '\n(no reference given to compare with)'
      )
    rows = [('', 'this run', 'reference', 'difference')]
    for name, value in ours.items():
      difference = figure(value - theirs[name], signed=True)
      rows.append((name, figure(value), figure(theirs[name]), difference))
    return f'{text_columns.render(rows)}\n{self.identical_line}'

  @property
  @abc.abstractmethod
  def identical_line(self) -> str:
    """A line with the number of answers identical to the reference's."""

  @property
  @abc.abstractmethod
  def verdict(self) -> str:
    """The rule that applies to the run, and the outcome; "" without a rule."""

  @abc.abstractmethod
  def problems(self) -> list[str]:
    """Returns the reasons why the run fails; empty if it passes.

    The list is also empty if no rule applies to the run.
    """


def figure(value: float | int, signed: bool = False) -> str:
  """Returns an integer in full, and a float with four decimals."""
  sign = '+' if signed else ''
  return f'{value:{sign}d}' if isinstance(value, int) else f'{value:{sign}.4f}'


def _figures(scores: Any) -> dict[str, float]:
  return dataclasses.asdict(scores)
