"""What every benchmark's judge says of an accuracy run."""

from collections.abc import Mapping
from typing import Protocol


class Judgement(Protocol):
  """Scores of an accuracy run, perhaps beside a reference's."""

  @property
  def metrics(self) -> Mapping[str, float]:
    """Figure by name, as the reference's evaluation calls them."""

  @property
  def line(self) -> str:
    """What accuracy.txt holds."""

  @property
  def reference_metrics(self) -> Mapping[str, float] | None:
    """The reference's figures; None without one."""

  @property
  def identical(self) -> int:
    """Samples answered as the reference answers them."""

  @property
  def passed(self) -> bool:
    """Whether there are no problems."""

  @property
  def table(self) -> str:
    """The figures of both as text."""

  @property
  def verdict(self) -> str:
    """Which rule the run was judged by, and how; "" without a reference."""

  def problems(self) -> list[str]:
    """Why the run does not pass; empty if it does, or has no reference."""
