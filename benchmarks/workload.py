"""Defines a request of the benchmark, and its format for a worker."""

from collections.abc import Sequence
import dataclasses


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt and the limits of its answer, in tokens.

  If min_new = max_new, the answer has exactly that many tokens.
  """

  tokens: tuple[int, ...]
  min_new: int
  max_new: int

  @property
  def exact(self) -> bool:
    return self.min_new == self.max_new


def from_json(items: Sequence[dict]) -> tuple[Request, ...]:
  return tuple(
    Request(tuple(i['tokens']), i['min_new'], i['max_new']) for i in items
  )
