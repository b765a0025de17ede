"""Requests that wait for a slot: when to admit, and which ones together.

Plain logic over a list; the scheduler holds its lock around every call.
"""

from collections.abc import Sequence
from concurrent import futures
import dataclasses
import math
from typing import Any


@dataclasses.dataclass(eq=False)
class Work:
  """One admitted request.

  Attributes:
    request: what the engine is to do; its `tokens` are the prompt, [T].
    deadline: monotonic time at which nobody waits any more; inf for never.
    arrived: monotonic time of admission.
    future: its answer. It stays cancellable until the answer is set.
  """

  request: Any
  deadline: float
  arrived: float
  future: futures.Future = dataclasses.field(default_factory=futures.Future)

  def is_dead(self, now: float) -> bool:
    """Whether nobody waits for the answer any more."""
    return self.future.cancelled() or now >= self.deadline


class WaitingList:
  """Waiting requests in order of arrival."""

  def __init__(self, buckets: Sequence[int], patience: float):
    """See `Settings.prompt_buckets` and `Settings.admission_wait`."""
    self._buckets = tuple(buckets)
    self._patience = patience
    self._items: list[Work] = []

  def __len__(self) -> int:
    return len(self._items)

  def add(self, work: Work) -> None:
    """Appends a request."""
    self._items.append(work)

  def remove_dead(self, now: float) -> list[Work]:
    """Takes out those that nobody waits for any more."""
    dead, alive = [], []
    for work in self._items:
      (dead if work.is_dead(now) else alive).append(work)
    self._items = alive
    return dead

  def remove_all(self) -> list[Work]:
    """Takes out everything."""
    items, self._items = self._items, []
    return items

  def ready_at(self, free: int) -> float:
    """When requests should be admitted to `free` slots.

    Returns:
      A monotonic time; in the past once the free slots can be filled or the
      oldest request has waited long enough, inf if there is nothing to do.
    """
    if not self._items or not free:
      return math.inf
    if len(self._items) >= free:
      return -math.inf
    return self._items[0].arrived + self._patience

  def next_deadline(self) -> float:
    """The earliest deadline of a waiting request; inf without one."""
    return min((w.deadline for w in self._items), default=math.inf)

  def take(self, free: int) -> list[Work]:
    """Takes out at most `free` requests to prefill together.

    The oldest is always among them, so none starves. The others are those
    whose padded length is nearest to its, because a prefill costs as much as
    its longest prompt; among equals the older ones.
    """
    if len(self._items) <= free:
      return self.remove_all()
    oldest = self._bucket(self._items[0])
    order = sorted(
        range(len(self._items)),
        key=lambda i: (i > 0, abs(self._bucket(self._items[i]) - oldest), i),
    )
    chosen = sorted(order[:free])
    taken = [self._items[i] for i in chosen]
    for i in reversed(chosen):
      del self._items[i]
    return taken

  def _bucket(self, work: Work) -> int:
    length = len(work.request.tokens)
    return next((b for b in self._buckets if b >= length), length)
