"""Requests that wait for a slot: when to admit, and which ones together.

Order of admission. A request with a lower priority number goes first. Nobody
starves for that: each `LIFT_SECS` that the oldest request of a priority has
waited lift its priority by one, so that after three times that long priority 3
is served before newcomers of priority 0. Among requests of one priority clients
take turns, one request each, and each client's own come in order of arrival:
1,000 requests of one client do not stand before the first one of another (see
`Lane`).

Requests are kept by padded length (bucket), and slots are filled in runs: a run
begins with the request that is due by the order above and goes on with the next
ones of its bucket, over as many refills as it takes, because a prefill costs as
much as its longest prompt and a decoding step reads as much of the prompts'
cache as the longest one needs: neighbours of one length waste least. A run ends
when its bucket is empty, or after `run_length` requests, or when another
priority is due; then the request that is due begins the next. So whoever is due
is admitted within one run of others. With one client and one priority the
request that is due is the oldest.

A queue that is full is full for whoever fills it: `may_exceed` lets clients
with less than their even share of it in all the same, half as many more as the
bound at most, so that one client's flood is refused and another's first request
is not. As requests of the former are refused until the queue is below its bound
again, the shares become even within the time that a full queue takes.

Every operation costs the same whether ten requests wait or ten thousand: the
work per request taken or given up is the number of buckets and of priorities at
most, and the logarithm of how many wait.

Plain logic: `admission.Admission` holds a lock around every call.
"""

import bisect
import collections
from collections.abc import Callable, Sequence
import heapq
import itertools
import math
import time
from typing import Generic, Protocol, TypeVar

from saxml_ext.common import request_options
from saxml_ext.server.scheduling import admitted

LIFT_SECS = 10.0
MOST_PRIORITY = request_options.MOST_PRIORITY


# Fewer entries of a heap than this are not worth sweeping.
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
  """Waiting members by an ascending key. Not thread-safe.

  Requests leave a queue in any order: they are taken, cancelled or expire.
  Searching a heap for one would cost as much as the heap is long. So the entry
  of a request that has left stays until it comes up, or until such entries are
  most of the heap and are swept out.
  """

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


class Lane:
  """Waiting requests of one priority. Not thread-safe.

  Fairness among clients is start-time fair queuing (Goyal, Vin and Cheng,
  "Start-time Fair Queuing", SIGCOMM 1996) with requests as the unit. Each
  request gets a tag, one above the last one of its client and not below the
  smallest that waits, and the smallest tag goes first. So 1,000 requests of one
  client have 1,000 tags in a row, and the first request of another one has the
  tag of their first that still waits. The requests of one client stay in their
  order of arrival; with a single client that is the order of all.
  """

  def __init__(self, priority: int, buckets: int, run_length: int):
    """Creates an empty one.

    Args:
      priority: of its requests.
      buckets: their number.
      run_length: most requests taken in a row from one bucket while another
        bucket holds one that is due before.
    """
    self._priority = priority
    self._run_length = run_length
    self._buckets = [LazyHeap[admitted.Work]() for _ in range(buckets)]
    self._arrivals = LazyHeap[admitted.Work]()
    # Of clients with waiting requests: how many these are, and the last tag.
    self._waiting = collections.Counter[str]()
    self._last: dict[str, int] = {}
    self._run = 0  # Bucket of the present run.
    self._run_left = 0

  def __len__(self) -> int:
    return len(self._arrivals)

  def add(self, work: admitted.Work) -> None:
    """Appends a request, whose bucket and order are set."""
    client = work.client
    head = self._head()
    served = 0 if head is None else head.tag - 1
    work.tag = max(served, self._last.get(client, 0)) + 1
    self._last[client] = work.tag
    self._waiting[client] += 1
    self._buckets[work.bucket].push(work.tag, work)
    self._arrivals.push(work.order, work)

  def next(self) -> admitted.Work:
    """The request whose turn it is; it stays. The lane is not empty."""
    if not self._run_left or not self._buckets[self._run]:
      head = self._head()
      assert head is not None
      self._run, self._run_left = head.bucket, self._run_length
    self._run_left -= 1
    work = self._buckets[self._run].first()
    assert work is not None
    return work

  def left(self, work: admitted.Work, bucket: int) -> None:
    """Forgets a request that does not wait any more, taken or given up."""
    self._buckets[bucket].left()
    self._arrivals.left()
    self._waiting[work.client] -= 1
    if not self._waiting[work.client]:
      del self._waiting[work.client]
      del self._last[work.client]

  def oldest(self) -> admitted.Work:
    """The request that waits longest; the lane is not empty."""
    work = self._arrivals.first()
    assert work is not None
    return work

  def rank(self, now: float, lift_secs: float) -> tuple[int, int]:
    """Which of several lanes goes first: the one with the smallest rank.

    Args:
      now: monotonic time.
      lift_secs: each so many seconds that its oldest request has waited lift
        the lane by one priority.
    """
    oldest = self.oldest()
    lifted = int(max(now - oldest.arrived, 0) // lift_secs)
    return self._priority - lifted, oldest.order

  def works(self) -> list[admitted.Work]:
    """All that wait here."""
    return [work for bucket in self._buckets for work in bucket.waiting()]

  def _head(self) -> admitted.Work | None:
    """The request with the smallest tag of all buckets."""
    heads = [h for b in self._buckets if (h := b.first()) is not None]
    return min(heads, key=lambda work: (work.tag, work.order), default=None)


class WaitingList:
  """Waiting requests by priority and bucket, see above."""

  def __init__(
    self,
    buckets: Sequence[int] = (),
    patience: float = 0.0,
    run_length: int = 1,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Creates an empty list.

    Args:
      buckets: padded prompt lengths, ascending; longer prompts share one more.
      patience: see `Settings.admission_wait`.
      run_length: most requests admitted before one of another bucket that is
        due.
      clock: monotonic time, of which `Work.arrived` is as well.
    """
    self._lengths = tuple(buckets)
    self._patience = patience
    self._run_length = run_length
    self._clock = clock
    self._lanes: dict[int, Lane] = {}
    self._clients = collections.Counter[str]()  # Those of each that wait.
    self._size = 0
    self._deadlines = LazyHeap[admitted.Work]()
    self._order = itertools.count()

  def __len__(self) -> int:
    return self._size

  def add(self, work: admitted.Work) -> None:
    """Appends a request; priorities beyond `MOST_PRIORITY` count as that."""
    work.priority = min(max(work.priority, -MOST_PRIORITY), MOST_PRIORITY)
    work.bucket = bisect.bisect_left(self._lengths, len(work.request.tokens))
    work.order = next(self._order)
    if work.priority not in self._lanes:
      self._lanes[work.priority] = Lane(
        work.priority, len(self._lengths) + 1, self._run_length
      )
    self._lanes[work.priority].add(work)
    self._clients[work.client] += 1
    self._size += 1
    if work.deadline < math.inf:
      self._deadlines.push(work.deadline, work)

  def may_exceed(self, client: str, held: int, limit: int) -> bool:
    """Whether a client may add a request although the queue is full.

    Args:
      client: who asks.
      held: requests held, waiting or running.
      limit: the most that are held in common.
    """
    if held >= limit + max(limit // 2, 1):
      return False
    own = self._clients.get(client, 0)
    clients = len(self._clients) + (not own)
    return clients > 1 and own < max(limit // clients, 1)

  def discard(self, work: admitted.Work) -> bool:
    """Takes out a request; False if it is not here."""
    if work.bucket < 0:
      return False
    self._left(work)
    return True

  def remove_expired(self, now: float) -> list[admitted.Work]:
    """Takes out those whose deadline has passed."""
    expired: list[admitted.Work] = []
    while (work := self._deadlines.first()) and work.deadline <= now:
      self._left(work)
      expired.append(work)
    return expired

  def remove_all(self) -> list[admitted.Work]:
    """Takes out everything."""
    everything = [w for lane in self._lanes.values() for w in lane.works()]
    for work in everything:
      self._left(work)
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
    oldest = min(lane.oldest().arrived for lane in self._lanes.values())
    return oldest + self._patience

  def next_deadline(self) -> float:
    """The earliest deadline of a waiting request; inf without one."""
    work = self._deadlines.first()
    return math.inf if work is None else work.deadline

  def take(self, free: int) -> list[admitted.Work]:
    """Takes out the next requests of the order above, `free` at most."""
    taken = []
    for _ in range(min(free, self._size)):
      work = self._due().next()
      self._left(work)
      taken.append(work)
    return taken

  def _due(self) -> Lane:
    """The lane whose turn it is."""
    if len(self._lanes) == 1:
      return next(iter(self._lanes.values()))
    now = self._clock()
    return min(self._lanes.values(), key=lambda lane: lane.rank(now, LIFT_SECS))

  def _left(self, work: admitted.Work) -> None:
    """Forgets a request, and what was kept for its like alone."""
    bucket, work.bucket = work.bucket, -1
    lane = self._lanes[work.priority]
    lane.left(work, bucket)
    if not lane:
      del self._lanes[work.priority]
    self._clients[work.client] -= 1
    if not self._clients[work.client]:
      del self._clients[work.client]
    self._size -= 1
    if work.deadline < math.inf:
      self._deadlines.left()
