"""Decides when waiting requests are admitted, and in which order.

Order of admission. A request with a lower priority number goes first. No
request starves. When the oldest request of a priority waits, its priority is
lifted by one every `LIFT_SECS`. So after three times `LIFT_SECS`, priority 3 is
served before new requests of priority 0. Among requests of one priority,
clients take turns with one request each. The requests of one client keep the
order of arrival. For example, 1,000 requests of one client do not delay the
first request of another client (see `Lane`).

Runs. Requests are kept by padded length (bucket), and slots are filled in runs.
A run begins with the request that is due in the order above. It continues with
the next requests of the same bucket, over as many refills as it needs. A
prefill costs as much as its longest prompt, and a decode step reads as much of
the cache as the longest prompt needs. So prompts of one length waste least. A
run ends when its bucket is empty, after `run_length` requests, or when another
priority is due. Then the request that is due begins the next run. So a due
request is admitted after at most one run of other requests. With one client and
one priority, the due request is the oldest one.

Full queues. A full queue must not let one client keep out the others. So
`may_exceed` admits more requests of clients that have less than an even share
of the queue. The queue may then exceed its limit by half. If one client floods
the queue, its requests are refused, but another client's first request is not.
The first client's requests are refused until the queue is below its limit
again. So the shares are even once a full queue has been served.

Cost. The cost per operation barely depends on the number of waiting requests.
To take or drop a request costs at most the number of buckets and priorities,
and the logarithm of the number of waiting requests.

The classes have no locks: `admission.Admission` holds a lock around every call.
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


# A heap with fewer entries than this is not worth cleaning up.
_FEW = 64


class Member(Protocol):
  """An object that can be kept in a heap.

  Attributes:
    order: The position among all that ever waited; it breaks ties of keys.
    bucket: The bucket where it waits; -1 while it does not wait.
  """

  order: int
  bucket: int


_MemberT = TypeVar('_MemberT', bound=Member)


class LazyHeap(Generic[_MemberT]):
  """A heap of waiting members by an ascending key. Not thread-safe.

  Requests leave a queue in any order: they are taken, cancelled or expire. The
  search for one entry in a heap takes time linear in its length. So the entry
  of a request that has left stays until it is first. If more than half of the
  entries are such entries, all of them are removed.
  """

  def __init__(self):
    self._entries: list[tuple[float, int, _MemberT]] = []
    self._waiting = 0

  def __len__(self) -> int:
    """Returns the number of waiting members."""
    return self._waiting

  @property
  def entries(self) -> int:
    """The number of entries in memory, including members that have left."""
    return len(self._entries)

  def push(self, key: float, member: _MemberT) -> None:
    """Adds a member that waits from now on."""
    heapq.heappush(self._entries, (key, member.order, member))
    self._waiting += 1

  def left(self) -> None:
    """Counts a member that no longer waits; its bucket is already -1."""
    self._waiting -= 1
    if len(self._entries) > 2 * self._waiting + _FEW:
      self._entries = [e for e in self._entries if e[2].bucket >= 0]
      heapq.heapify(self._entries)

  def first(self) -> _MemberT | None:
    """Returns the waiting member with the smallest key, or None."""
    while self._entries and self._entries[0][2].bucket < 0:
      heapq.heappop(self._entries)
    return self._entries[0][2] if self._entries else None

  def waiting(self) -> list[_MemberT]:
    """Returns all waiting members, in no particular order."""
    return [e[2] for e in self._entries if e[2].bucket >= 0]


class Lane:
  """The waiting requests of one priority. Not thread-safe.

  Fairness among clients is start-time fair queuing (Goyal, Vin and Cheng,
  "Start-time Fair Queuing", SIGCOMM 1996) with requests as the unit. Each
  request gets a tag. The tag is one above the last tag of its client, and at
  least the smallest waiting tag. The request with the smallest tag goes first.
  So 1,000 requests of one client have 1,000 consecutive tags. The first request
  of another client has the same tag as the first of these that still waits. The
  requests of one client keep the order of arrival. With a single client, all
  requests do.
  """

  def __init__(self, priority: int, buckets: int, run_length: int):
    """Creates an empty lane.

    Args:
      priority: The priority of its requests.
      buckets: The number of buckets.
      run_length: The maximum number of requests taken in a row from one bucket
        while an earlier request waits in another bucket.
    """
    self._priority = priority
    self._run_length = run_length
    self._buckets = [LazyHeap[admitted.Work]() for _ in range(buckets)]
    self._arrivals = LazyHeap[admitted.Work]()
    # The number of waiting requests and the last tag, for each client with
    # waiting requests.
    self._waiting = collections.Counter[str]()
    self._last: dict[str, int] = {}
    self._run = 0  # The bucket of the current run.
    self._run_left = 0

  def __len__(self) -> int:
    return len(self._arrivals)

  def add(self, work: admitted.Work) -> None:
    """Appends a request that has a bucket and an order."""
    client = work.client
    head = self._head()
    served = 0 if head is None else head.tag - 1
    work.tag = max(served, self._last.get(client, 0)) + 1
    self._last[client] = work.tag
    self._waiting[client] += 1
    self._buckets[work.bucket].push(work.tag, work)
    self._arrivals.push(work.order, work)

  def next(self) -> admitted.Work:
    """Returns the next request without removing it; fails on an empty lane."""
    if not self._run_left or not self._buckets[self._run]:
      head = self._head()
      assert head is not None
      self._run, self._run_left = head.bucket, self._run_length
    self._run_left -= 1
    work = self._buckets[self._run].first()
    assert work is not None
    return work

  def left(self, work: admitted.Work, bucket: int) -> None:
    """Removes a request that was taken or dropped."""
    self._buckets[bucket].left()
    self._arrivals.left()
    self._waiting[work.client] -= 1
    if not self._waiting[work.client]:
      del self._waiting[work.client]
      del self._last[work.client]

  def oldest(self) -> admitted.Work:
    """Returns the request that has waited longest; fails on an empty lane."""
    work = self._arrivals.first()
    assert work is not None
    return work

  def rank(self, now: float, lift_secs: float) -> tuple[int, int]:
    """Returns the rank; the lane with the smallest rank goes first.

    Args:
      now: The monotonic time.
      lift_secs: The seconds of waiting of the oldest request that lift the lane
        by one priority.
    """
    oldest = self.oldest()
    lifted = int(max(now - oldest.arrived, 0) // lift_secs)
    return self._priority - lifted, oldest.order

  def works(self) -> list[admitted.Work]:
    """Returns all requests of this lane."""
    return [work for bucket in self._buckets for work in bucket.waiting()]

  def _head(self) -> admitted.Work | None:
    """Returns the request with the smallest tag of all buckets."""
    heads = [h for b in self._buckets if (h := b.first()) is not None]
    return min(heads, key=lambda work: (work.tag, work.order), default=None)


class WaitingList:
  """Waiting requests by priority and bucket; see the module docstring."""

  def __init__(
    self,
    buckets: Sequence[int] = (),
    patience: float = 0.0,
    run_length: int = 1,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Creates an empty list.

    Args:
      buckets: The padded prompt lengths, ascending. Longer prompts share one
        more bucket.
      patience: The wait for a shared prefill, see `Settings.admission_wait`.
      run_length: The maximum number of requests admitted before a due request
        of another bucket.
      clock: The monotonic clock, which also sets `Work.arrived`.
    """
    self._lengths = tuple(buckets)
    self._patience = patience
    self._run_length = run_length
    self._clock = clock
    self._lanes: dict[int, Lane] = {}
    self._clients = collections.Counter[str]()  # Waiting requests.
    self._size = 0
    self._deadlines = LazyHeap[admitted.Work]()
    self._order = itertools.count()

  def __len__(self) -> int:
    return self._size

  def add(self, work: admitted.Work) -> None:
    """Appends a request; limits its priority to `MOST_PRIORITY`."""
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
    """Returns True if a client may add a request to a full queue.

    Args:
      client: The name of the caller.
      held: The number of pending requests, waiting or running.
      limit: The limit of pending requests of all clients.
    """
    if held >= limit + max(limit // 2, 1):
      return False
    own = self._clients.get(client, 0)
    clients = len(self._clients) + (not own)
    return clients > 1 and own < max(limit // clients, 1)

  def discard(self, work: admitted.Work) -> bool:
    """Removes a request; returns False if it is not in the list."""
    if work.bucket < 0:
      return False
    self._left(work)
    return True

  def remove_expired(self, now: float) -> list[admitted.Work]:
    """Removes and returns the requests whose deadline has passed."""
    expired: list[admitted.Work] = []
    while (work := self._deadlines.first()) and work.deadline <= now:
      self._left(work)
      expired.append(work)
    return expired

  def remove_all(self) -> list[admitted.Work]:
    """Removes and returns all requests."""
    everything = [w for lane in self._lanes.values() for w in lane.works()]
    for work in everything:
      self._left(work)
    return everything

  def ready_at(self, free: int) -> float:
    """Returns the time at which requests should be admitted to `free` slots.

    Returns:
      A monotonic time; inf if there is nothing to do. The time is in the past
      if the free slots can be filled, or if the oldest request has waited long
      enough.
    """
    if not self._size or not free:
      return math.inf
    if self._size >= free:
      return -math.inf
    oldest = min(lane.oldest().arrived for lane in self._lanes.values())
    return oldest + self._patience

  def next_deadline(self) -> float:
    """Returns the earliest deadline of a waiting request, or inf."""
    work = self._deadlines.first()
    return math.inf if work is None else work.deadline

  def take(self, free: int) -> list[admitted.Work]:
    """Removes and returns the next requests in order, at most `free`."""
    taken = []
    for _ in range(min(free, self._size)):
      work = self._due().next()
      self._left(work)
      taken.append(work)
    return taken

  def _due(self) -> Lane:
    """Returns the lane whose turn it is."""
    if len(self._lanes) == 1:
      return next(iter(self._lanes.values()))
    now = self._clock()
    return min(self._lanes.values(), key=lambda lane: lane.rank(now, LIFT_SECS))

  def _left(self, work: admitted.Work) -> None:
    """Removes a request, and the data that only this request needs."""
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
