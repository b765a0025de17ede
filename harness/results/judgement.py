"""Judges an accuracy run, beside a reference if there is one."""

import abc
import dataclasses
from typing import Any, Generic, Protocol, TypeVar

from saxml_ext.common.pages import text_columns


class Scores(Protocol):
  """The figures of a run, a dataclass."""

  @property
  def line(self) -> str:
    """The figures as accuracy.txt has them."""


_S = TypeVar('_S', bound=Scores)


@dataclasses.dataclass(frozen=True)
class Judgement(abc.ABC, Generic[_S]):
  """Scores of an accuracy run, perhaps beside those of a reference.

  Attributes:
    ours: The scores of the run.
    reference: The scores of the reference; None if there is none.
    identical: Number of samples that are answered as the reference does.
  """

  ours: _S
  reference: _S | None
  identical: int

  @property
  def metrics(self) -> dict[str, float]:
    """Figure by name, as the reference's evaluation calls them."""
    return _figures(self.ours)

  @property
  def line(self) -> str:
    """The line that accuracy.txt holds."""
    return self.ours.line

  @property
  def reference_metrics(self) -> dict[str, float] | None:
    """The reference's figures; None without one."""
    return _figures(self.reference) if self.reference else None

  @property
  def passed(self) -> bool:
    """True if there are no problems."""
    return not self.problems()

  @property
  def table(self) -> str:
    """The figures of both, and how many answers are identical."""
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
    """The number of answers that are the reference's, in words."""

  @property
  @abc.abstractmethod
  def verdict(self) -> str:
    """The rule that the run was judged by, and how; "" without one."""

  @abc.abstractmethod
  def problems(self) -> list[str]:
    """Returns why the run does not pass; empty if it does, or has no rule."""


def figure(value: float | int, signed: bool = False) -> str:
  """Returns a count in full, or another figure with four decimals."""
  sign = '+' if signed else ''
  return f'{value:{sign}d}' if isinstance(value, int) else f'{value:{sign}.4f}'


def _figures(scores: Any) -> dict[str, float]:
  return dataclasses.asdict(scores)
