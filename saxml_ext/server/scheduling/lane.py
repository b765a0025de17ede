"""The waiting requests of one priority, see `waiting` for the order.

Fairness among clients is start-time fair queuing (Goyal, Vin and Cheng,
"Start-time Fair Queuing", SIGCOMM 1996) with requests as the unit. Each request
gets a tag, one above the last one of its client and not below the smallest that
waits, and the smallest tag goes first. So 1,000 requests of one client have
1,000 tags in a row, and the first request of another one has the tag of their
first that still waits. The requests of one client stay in their order of
arrival; with a single client that is the order of all.
"""

from saxml_ext.server.scheduling import admitted as work_lib
from saxml_ext.server.scheduling import lazy_heap


class Lane:
  """Waiting requests of one priority. Not thread-safe."""

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
    self._buckets: tuple[lazy_heap.LazyHeap[work_lib.Work], ...] = tuple(
      lazy_heap.LazyHeap() for _ in range(buckets)
    )
    self._arrivals: lazy_heap.LazyHeap[work_lib.Work] = lazy_heap.LazyHeap()
    # Of clients with waiting requests: how many these are, and the last tag.
    self._waiting: dict[str, int] = {}
    self._last: dict[str, int] = {}
    self._run = 0  # Bucket of the present run.
    self._run_left = 0

  def __len__(self) -> int:
    return len(self._arrivals)

  def add(self, work: work_lib.Work) -> None:
    """Appends a request, whose bucket and order are set."""
    client = work.client
    head = self._head()
    served = 0 if head is None else head.tag - 1
    work.tag = max(served, self._last.get(client, 0)) + 1
    self._last[client] = work.tag
    self._waiting[client] = self._waiting.get(client, 0) + 1
    self._buckets[work.bucket].push(work.tag, work)
    self._arrivals.push(work.order, work)

  def next(self) -> work_lib.Work:
    """The request whose turn it is; it stays. The lane is not empty."""
    if not self._run_left or not self._buckets[self._run]:
      head = self._head()
      assert head is not None
      self._run, self._run_left = head.bucket, self._run_length
    self._run_left -= 1
    work = self._buckets[self._run].first()
    assert work is not None
    return work

  def left(self, work: work_lib.Work, bucket: int) -> None:
    """Forgets a request that does not wait any more, taken or given up."""
    self._buckets[bucket].left()
    self._arrivals.left()
    self._waiting[work.client] -= 1
    if not self._waiting[work.client]:
      del self._waiting[work.client]
      del self._last[work.client]

  def oldest(self) -> work_lib.Work:
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

  def works(self) -> list[work_lib.Work]:
    """All that wait here."""
    return [work for bucket in self._buckets for work in bucket.waiting()]

  def _head(self) -> work_lib.Work | None:
    """The request with the smallest tag of all buckets."""
    heads = [h for b in self._buckets if (h := b.first()) is not None]
    return min(heads, key=lambda work: (work.tag, work.order), default=None)
