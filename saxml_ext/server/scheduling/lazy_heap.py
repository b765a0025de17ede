"""A heap whose entries may leave from anywhere.

Requests leave a queue in any order: they are taken, cancelled or expire.
Searching a heap for one would cost as much as the heap is long, so an entry of
a request that has left stays until it comes up, or until such entries are most
of the heap and are swept out.
"""

import heapq
from typing import Generic, Protocol, TypeVar

# Fewer entries than this are not worth sweeping.
_FEW = 64


class Member(Protocol):
  """What can be kept in a heap.

  Attributes:
    order: its place among all that ever waited; breaks ties of keys.
    bucket: where it waits; -1 while it does not wait.
  """

  order: int
  bucket: int


_MemberT = TypeVar('_MemberT', bound=Member)


class LazyHeap(Generic[_MemberT]):
  """Waiting members by an ascending key. Not thread-safe."""

  def __init__(self):
    self._entries: list[tuple[float, int, _MemberT]] = []
    self._waiting = 0

  def __len__(self) -> int:
    """How many wait."""
    return self._waiting

  @property
  def entries(self) -> int:
    """How many are kept in memory, those that left included."""
    return len(self._entries)

  def push(self, key: float, member: _MemberT) -> None:
    """Adds one that waits from now on."""
    heapq.heappush(self._entries, (key, member.order, member))
    self._waiting += 1

  def left(self) -> None:
    """Notes that a member does not wait any more; its bucket is -1."""
    self._waiting -= 1
    if len(self._entries) > 2 * self._waiting + _FEW:
      self._entries = [e for e in self._entries if e[2].bucket >= 0]
      heapq.heapify(self._entries)

  def first(self) -> _MemberT | None:
    """The waiting member with the smallest key; None without one."""
    while self._entries and self._entries[0][2].bucket < 0:
      heapq.heappop(self._entries)
    return self._entries[0][2] if self._entries else None

  def waiting(self) -> list[_MemberT]:
    """All that wait, in no order."""
    return [e[2] for e in self._entries if e[2].bucket >= 0]
