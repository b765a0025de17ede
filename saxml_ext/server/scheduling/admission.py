"""The requests that a model's scheduler holds, and the limit on them."""

import collections
from collections.abc import Callable
import math
import threading
import time

from saxml_ext.common import errors
from saxml_ext.server.scheduling import admitted
from saxml_ext.server.scheduling import stats
from saxml_ext.server.scheduling import waiting

# Length of a run of one bucket, see `waiting`, in times the slots.
_SLOTS_PER_RUN = 4

# The rate of answers is that of the last so many.
_WINDOW = 64
# Seconds per request before any was answered.
_UNKNOWN_SECS = 0.1
_LEAST_SECS = 0.01
_MOST_SECS = 10.0


class Pace:
  """The rate of the last answers. Not thread-safe."""

  def __init__(self, clock: Callable[[], float] = time.monotonic):
    self._clock = clock
    self._answered: collections.deque[float] = collections.deque(maxlen=_WINDOW)

  def done(self, count: int) -> None:
    """Counts requests that were answered now."""
    self._answered.extend([self._clock()] * count)

  def seconds_per_request(self) -> float:
    """In how many seconds a full queue may have room for one more.

    The mean over the last answers and the time since them, so that an engine
    that hangs puts callers off for longer and longer; within 10 ms and 10 s.
    """
    if not self._answered:
      return _UNKNOWN_SECS
    passed = self._clock() - self._answered[0]
    return min(max(passed / len(self._answered), _LEAST_SECS), _MOST_SECS)


class Admission:
  """The requests that wait and those in slots, with a limit on both together.

  Requests for slots have a waiting list. Texts have one of their own, and the
  engine works on one text at a time.

  Callers on any thread add and count requests, and forget those that are done.
  The scheduler's thread alone moves them on: it waits for requests, takes those
  that are due and ends those that are answered or dead. One reentrant lock
  guards all of it. Each public method takes the lock, and releases it before it
  returns, so it is never held during a call of the engine or of a callback.
  """

  def __init__(
    self,
    num_slots: int,
    limit: int,
    buckets: tuple[int, ...],
    patience: float,
  ):
    """Holds nothing yet; see `Scheduler` for the arguments."""
    self._num_slots = num_slots
    self._limit = limit
    self._changed = threading.Condition()
    self._waiting = waiting.WaitingList(
      buckets, patience, _SLOTS_PER_RUN * num_slots
    )
    self._texts = waiting.WaitingList()
    self._text_counts: collections.Counter[str] = collections.Counter()
    self._running: dict[int, admitted.Work] = {}
    self._on_text: list[admitted.Work] = []
    self._pace = Pace()
    self._text_pace = Pace()
    self._closed_because: errors.SaxError | None = None

  def check(self, method: str, client: str) -> None:
    """Raises what `add` would for a request of a method."""
    with self._changed:
      if self._closed_because is not None:
        raise admitted.copy(self._closed_because)
      held = self._held(method)
      if held >= self._limit and not self._queue(method).may_exceed(
        client, held, self._limit
      ):
        paced = self._text_pace if method in admitted.TEXTS else self._pace
        raise errors.ResourceExhausted(
          f'Too many requests: {held} {method} requests are held and the limit'
          f' is {self._limit} (BATCH_SIZE times MAX_LIVE_BATCHES); try again'
          ' later',
          retry_after=paced.seconds_per_request(),
        )

  def add(self, work: admitted.Work) -> None:
    """Lets a request wait.

    Raises:
      errors.ResourceExhausted: as many requests as allowed are held.
      errors.SaxError: the reason that `close` or `fail` was given.
    """
    with self._changed:
      self.check(work.method, work.client)
      self._queue(work.method).add(work)
      if work.method in admitted.TEXTS:
        self._text_counts[work.method] += 1
      self._changed.notify()

  def forget(self, work: admitted.Work) -> bool:
    """Makes room for another request when the future of one is done.

    Returns:
      True if the request was cancelled and is still in its slot.
    """
    with self._changed:
      if work.method in admitted.TEXTS:
        self._text_counts[work.method] -= 1
      if not work.future.cancelled() or self._queue(work.method).discard(work):
        return False
      return work in self._running.values()

  def pending(self, method: str) -> int:
    """Returns how many requests of a method wait or run."""
    with self._changed:
      if method in admitted.TEXTS:
        return self._text_counts[method]
      return self._held(method)

  def load(self) -> stats.Load:
    """Returns how much there is to do at this moment."""
    with self._changed:
      return stats.Load(
        queued=len(self._waiting) + len(self._texts),
        running=len(self._running),
        slots=self._num_slots,
      )

  def close(self, reason: errors.SaxError, drain: bool) -> list[admitted.Work]:
    """Refuses requests from now on, with `reason` unless there is one already.

    Returns:
      The requests that are dropped: none with `drain`, all otherwise.
    """
    with self._changed:
      self._closed_because = self._closed_because or reason
      self._changed.notify()
      return [] if drain else self._take_all()

  # Below: on the scheduler's thread only.

  def fail(self, reason: errors.SaxError) -> list[admitted.Work]:
    """Drops all requests and returns them; refuses others with `reason`."""
    with self._changed:
      self._closed_because = reason
      return self._take_all()

  def wait(self) -> bool:
    """Waits for something to do; returns False when closed and all is done."""
    with self._changed:
      while not self._running and not self._texts:
        if self._closed_because is not None and not self._waiting:
          return False
        now = time.monotonic()
        wake = min(
          self._ready_at(self._num_slots), self._waiting.next_deadline()
        )
        if wake <= now:
          return True
        self._changed.wait(None if wake == math.inf else wake - now)
      return True

  def remove_dead(self) -> tuple[list[admitted.Work], dict[int, admitted.Work]]:
    """Removes the requests that nobody waits for any more.

    Returns:
      Those that expired while they waited; those in slots, by slot.
    """
    now = time.monotonic()
    with self._changed:
      late = self._waiting.remove_expired(now) + self._texts.remove_expired(now)
      slots = [s for s, w in self._running.items() if w.is_dead(now)]
      return late, {slot: self._running.pop(slot) for slot in slots}

  def begin_text(self) -> admitted.Work | None:
    """Takes the next text, if one waits. It is held until `end_text`."""
    with self._changed:
      self._on_text = self._texts.take(1)
      return self._on_text[0] if self._on_text else None

  def end_text(self) -> bool:
    """Ends the text that was begun; returns False if it was dropped before."""
    with self._changed:
      is_held = bool(self._on_text)
      self._on_text = []
      self._text_pace.done(1)
      return is_held

  def fill_slots(self) -> dict[int, admitted.Work]:
    """Moves requests to free slots if it is time to; returns them by slot."""
    with self._changed:
      free = [s for s in range(self._num_slots) if s not in self._running]
      if self._ready_at(len(free)) > time.monotonic():
        return {}
      filled = dict(zip(free, self._waiting.take(len(free))))
      self._running.update(filled)
      return filled

  def empty_slots(self, slots: list[int]) -> list[admitted.Work | None]:
    """Ends what is in some slots; None stands for what was dropped before."""
    with self._changed:
      self._pace.done(len(slots))
      return [self._running.pop(slot, None) for slot in slots]

  def streams(self) -> dict[int, admitted.Work]:
    """Returns the requests in slots that report progress, by slot."""
    with self._changed:
      return {s: w for s, w in self._running.items() if w.on_progress}

  def may_start_another(self) -> bool:
    """Returns True if a text waits, or a slot is free for who comes."""
    with self._changed:
      has_room = len(self._running) < self._num_slots
      return bool(self._texts) or has_room and self._closed_because is None

  # Below: with the lock held.

  def _queue(self, method: str) -> waiting.WaitingList:
    return self._texts if method in admitted.TEXTS else self._waiting

  def _held(self, method: str) -> int:
    if method in admitted.TEXTS:
      return len(self._texts) + len(self._on_text)
    if method == admitted.STREAM:
      return len(self.streams())  # Those that wait count as lm.generate.
    return len(self._waiting) + len(self._running)

  def _ready_at(self, free: int) -> float:
    """See `WaitingList.ready_at`; no company comes once this is closed."""
    ready = self._waiting.ready_at(free)
    if self._closed_because is not None and ready < math.inf:
      return -math.inf
    return ready

  def _take_all(self) -> list[admitted.Work]:
    taken = self._waiting.remove_all() + self._texts.remove_all()
    taken += self._on_text
    taken += self._running.values()
    self._on_text = []
    self._running = {}
    return taken
