"""Requests that wait for a slot: when to admit, and which ones together.

Order of admission. A request with a lower priority number goes first. Nobody
starves for that: each `LIFT_SECS` that the oldest request of a priority has
waited lift its priority by one, so that after three times that long priority 3
is served before newcomers of priority 0. Among requests of one priority clients
take turns, one request each, and each client's own come in order of arrival:
1,000 requests of one client do not stand before the first one of another (see
`lane`).

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
from collections.abc import Callable, Sequence
import itertools
import math
import time
from typing import TypeAlias

from saxml_ext.common import request_options
from saxml_ext.server.scheduling import admitted as work_lib
from saxml_ext.server.scheduling import lane as lane_lib
from saxml_ext.server.scheduling import lazy_heap

Work: TypeAlias = work_lib.Work

LIFT_SECS = 10.0
MOST_PRIORITY = request_options.MOST_PRIORITY


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
    self._lanes: dict[int, lane_lib.Lane] = {}
    self._clients: dict[str, int] = {}  # How many requests of each wait.
    self._size = 0
    self._deadlines: lazy_heap.LazyHeap[Work] = lazy_heap.LazyHeap()
    self._order = itertools.count()

  def __len__(self) -> int:
    return self._size

  def add(self, work: Work) -> None:
    """Appends a request; priorities beyond `MOST_PRIORITY` count as that."""
    work.priority = min(max(work.priority, -MOST_PRIORITY), MOST_PRIORITY)
    work.bucket = bisect.bisect_left(self._lengths, len(work.request.tokens))
    work.order = next(self._order)
    if work.priority not in self._lanes:
      self._lanes[work.priority] = lane_lib.Lane(
        work.priority, len(self._lengths) + 1, self._run_length
      )
    self._lanes[work.priority].add(work)
    self._clients[work.client] = self._clients.get(work.client, 0) + 1
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

  def discard(self, work: Work) -> bool:
    """Takes out a request; False if it is not here."""
    if work.bucket < 0:
      return False
    self._left(work)
    return True

  def remove_expired(self, now: float) -> list[Work]:
    """Takes out those whose deadline has passed."""
    expired: list[Work] = []
    while (work := self._deadlines.first()) and work.deadline <= now:
      self._left(work)
      expired.append(work)
    return expired

  def remove_all(self) -> list[Work]:
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

  def take(self, free: int) -> list[Work]:
    """Takes out the next requests of the order above, `free` at most."""
    taken = []
    for _ in range(min(free, self._size)):
      work = self._due().next()
      self._left(work)
      taken.append(work)
    return taken

  def _due(self) -> lane_lib.Lane:
    """The lane whose turn it is."""
    if len(self._lanes) == 1:
      return next(iter(self._lanes.values()))
    now = self._clock()
    return min(self._lanes.values(), key=lambda lane: lane.rank(now, LIFT_SECS))

  def _left(self, work: Work) -> None:
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
