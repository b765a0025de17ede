"""Requests that wait for a slot: when to admit, and which ones together.

Order of admission. Requests are kept by padded length (bucket), each bucket in
order of arrival. Slots are filled in runs: a run begins with the oldest
request of all and goes on with the next ones of its bucket, over as many
refills as it takes, because a prefill costs as much as its longest prompt and
a decoding step reads as much of the prompts' cache as the longest one needs:
neighbours of one length waste least. A run ends when its bucket is empty, or
after `run_length` requests; then the oldest request begins the next. So
whoever has become the oldest is admitted within one run of others, and
nobody starves.

Every operation costs the same whether ten requests wait or ten thousand: the
work per request taken or given up is the number of buckets at most, and that
of a deadline the logarithm of how many wait.

Plain logic; the scheduler holds its lock around every call.
"""

import bisect
import collections
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import heapq
import itertools
import math
from typing import Any

# A deadline's entry stays behind when its request leaves; once these are most
# of the entries they are swept out, but not for a handful.
_FEW = 64


@dataclasses.dataclass(eq=False, slots=True)
class Work:
  """One admitted request.

  Attributes:
    request: what the engine is to do; its `tokens` are the prompt, [T].
    deadline: monotonic time at which nobody waits any more; inf for never.
    arrived: monotonic time of admission.
    future: its answer. It stays cancellable until the answer is set.
    bucket: where it waits, an index; -1 while it does not wait.
    order: its place among all that ever waited.
  """

  request: Any
  deadline: float
  arrived: float
  future: futures.Future = dataclasses.field(default_factory=futures.Future)
  bucket: int = -1
  order: int = -1

  def is_dead(self, now: float) -> bool:
    """Whether nobody waits for the answer any more."""
    return now >= self.deadline or self.future.cancelled()


class WaitingList:
  """Waiting requests by bucket, see above."""

  def __init__(
    self,
    buckets: Sequence[int] = (),
    patience: float = 0.0,
    run_length: int = 1,
  ):
    """Creates an empty list.

    Args:
      buckets: padded prompt lengths, ascending; longer prompts share one more.
      patience: see `Settings.admission_wait`.
      run_length: most requests admitted before an older one of another bucket.
    """
    self._lengths = tuple(buckets)
    self._patience = patience
    self._run_length = run_length
    # Ordered dictionaries, for a request may leave from anywhere.
    self._buckets: tuple[collections.OrderedDict[Work, None], ...] = tuple(
      collections.OrderedDict() for _ in range(len(self._lengths) + 1)
    )
    self._size = 0
    self._deadlines: list[tuple[float, int, Work]] = []
    self._order = itertools.count()
    self._run = 0  # Bucket of the present run.
    self._run_left = 0

  def __len__(self) -> int:
    return self._size

  def add(self, work: Work) -> None:
    """Appends a request."""
    work.bucket = bisect.bisect_left(self._lengths, len(work.request.tokens))
    work.order = next(self._order)
    self._buckets[work.bucket][work] = None
    self._size += 1
    if work.deadline < math.inf:
      heapq.heappush(self._deadlines, (work.deadline, work.order, work))

  def discard(self, work: Work) -> bool:
    """Takes out a request; False if it is not here."""
    if work.bucket < 0:
      return False
    del self._buckets[work.bucket][work]
    self._left(work)
    return True

  def remove_expired(self, now: float) -> list[Work]:
    """Takes out those whose deadline has passed."""
    expired = []
    while self.next_deadline() <= now:
      work = self._deadlines[0][2]
      self.discard(work)
      expired.append(work)
    return expired

  def remove_all(self) -> list[Work]:
    """Takes out everything."""
    everything = [work for bucket in self._buckets for work in bucket]
    for work in everything:
      self.discard(work)
    return everything

  def ready_at(self, free: int) -> float:
    """When requests should be admitted to `free` slots.

    Returns:
      A monotonic time; in the past once the free slots can be filled or the
      oldest request has waited long enough, inf if there is nothing to do.
    """
    if not self._size or not free:
      return math.inf
    if self._size >= free:
      return -math.inf
    return self._oldest().arrived + self._patience

  def next_deadline(self) -> float:
    """The earliest deadline of a waiting request; inf without one."""
    while self._deadlines and self._deadlines[0][2].bucket < 0:
      heapq.heappop(self._deadlines)
    return self._deadlines[0][0] if self._deadlines else math.inf

  def take(self, free: int) -> list[Work]:
    """Takes out the next requests of the order above, `free` at most."""
    taken = []
    for _ in range(min(free, self._size)):
      if not self._run_left or not self._buckets[self._run]:
        self._run = self._oldest().bucket
        self._run_left = self._run_length
      self._run_left -= 1
      work, _ = self._buckets[self._run].popitem(last=False)
      self._left(work)
      taken.append(work)
    return taken

  def _oldest(self) -> Work:
    heads = (next(iter(bucket)) for bucket in self._buckets if bucket)
    return min(heads, key=lambda work: work.order)

  def _left(self, work: Work) -> None:
    work.bucket = -1
    self._size -= 1
    if len(self._deadlines) > 2 * self._size + _FEW:
      self._deadlines = [e for e in self._deadlines if e[2].bucket >= 0]
      heapq.heapify(self._deadlines)
