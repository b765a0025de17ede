"""The pending requests of a model's scheduler, and their limit."""

import collections
from collections.abc import Callable
import math
import threading
import time

from saxml_ext.common import errors
from saxml_ext.server.scheduling import admitted
from saxml_ext.server.scheduling import stats
from saxml_ext.server.scheduling import waiting

# The maximum length of a run of one bucket (see `waiting`), as a multiple of
# the slots.
_SLOTS_PER_RUN = 4

# The number of recent answers from which the rate is computed.
_WINDOW = 64
# The assumed seconds per request before the first answer.
_UNKNOWN_SECS = 0.1
_LEAST_SECS = 0.01
_MOST_SECS = 10.0


class Pace:
  """The rate of the most recent answers. Not thread-safe."""

  def __init__(self, clock: Callable[[], float] = time.monotonic):
    self._clock = clock
    self._answered: collections.deque[float] = collections.deque(maxlen=_WINDOW)

  def done(self, count: int) -> None:
    """Counts requests that were answered now."""
    self._answered.extend([self._clock()] * count)

  def seconds_per_request(self) -> float:
    """Returns the expected seconds until a full queue has room for a request.

    This is the mean interval of the most recent answers and the time since
    then, limited to the range from 10 ms to 10 s. If the engine hangs, the mean
    grows, so that callers wait longer before they retry.
    """
    if not self._answered:
      return _UNKNOWN_SECS
    passed = self._clock() - self._answered[0]
    return min(max(passed / len(self._answered), _LEAST_SECS), _MOST_SECS)


class Admission:
  """The waiting and running requests, with a limit on their total number.

  Requests for slots have one waiting list, and texts have another. The engine
  processes one text at a time.

  Callers on any thread add and count requests, and remove finished ones. Only
  the scheduler's thread moves requests forward. It waits for requests, takes
  those that are due, and removes those that are answered or dead.

  One reentrant lock guards all data. Each public method acquires the lock and
  releases it before it returns. So the lock is never held during a call of the
  engine or of a callback.
  """

  def __init__(
    self, num_slots: int, limit: int, buckets: tuple[int, ...], patience: float
  ):
    """Creates an empty object; see `Scheduler` for the arguments."""
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
    """Raises the error that `add` would raise for a request of a method."""
    with self._changed:
      if self._closed_because is not None:
        raise admitted.copy(self._closed_because)
      held = self._held(method)
      if held >= self._limit and not self._queue(method).may_exceed(
        client, held, self._limit
      ):
        paced = self._text_pace if method in admitted.TEXTS else self._pace
        raise errors.ResourceExhausted(
          f'Too many requests: {held} {method} requests are in progress, and'
          f' the limit is {self._limit} (BATCH_SIZE times MAX_LIVE_BATCHES).'
          ' Try again later.',
          retry_after=paced.seconds_per_request(),
        )

  def add(self, work: admitted.Work) -> None:
    """Adds a request to its waiting list.

    Raises:
      errors.ResourceExhausted: The limit of pending requests is reached.
      errors.SaxError: The reason that was passed to `close` or `fail`.
    """
    with self._changed:
      self.check(work.method, work.client)
      self._queue(work.method).add(work)
      if work.method in admitted.TEXTS:
        self._text_counts[work.method] += 1
      self._changed.notify()

  def forget(self, work: admitted.Work) -> bool:
    """Removes a request whose future is done, to make room for another.

    Returns:
      True if the request was cancelled and still occupies its slot.
    """
    with self._changed:
      if work.method in admitted.TEXTS:
        self._text_counts[work.method] -= 1
      if not work.future.cancelled() or self._queue(work.method).discard(work):
        return False
      return work in self._running.values()

  def pending(self, method: str) -> int:
    """Returns the number of requests of a method that wait or run."""
    with self._changed:
      if method in admitted.TEXTS:
        return self._text_counts[method]
      return self._held(method)

  def load(self) -> stats.Load:
    """Returns the numbers of waiting and running requests."""
    with self._changed:
      return stats.Load(
        queued=len(self._waiting) + len(self._texts),
        running=len(self._running),
        slots=self._num_slots,
      )

  def close(self, reason: errors.SaxError, drain: bool) -> list[admitted.Work]:
    """Refuses new requests with `reason`, unless another reason is set already.

    Returns:
      The dropped requests: none with `drain`, otherwise all.
    """
    with self._changed:
      self._closed_because = self._closed_because or reason
      self._changed.notify()
      return [] if drain else self._take_all()

  # Only the scheduler's thread calls the methods below.

  def fail(self, reason: errors.SaxError) -> list[admitted.Work]:
    """Drops and returns all requests; refuses new ones with `reason`."""
    with self._changed:
      self._closed_because = reason
      return self._take_all()

  def wait(self) -> bool:
    """Waits for a task; returns False when closed and no tasks are left."""
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
    """Removes the requests that are expired or cancelled.

    Returns:
      The requests that expired while they waited, and those in slots, by slot.
    """
    now = time.monotonic()
    with self._changed:
      late = self._waiting.remove_expired(now) + self._texts.remove_expired(now)
      slots = [s for s, w in self._running.items() if w.is_dead(now)]
      return late, {slot: self._running.pop(slot) for slot in slots}

  def begin_text(self) -> admitted.Work | None:
    """Takes the next text, if one waits, and holds it until `end_text`."""
    with self._changed:
      self._on_text = self._texts.take(1)
      return self._on_text[0] if self._on_text else None

  def end_text(self) -> bool:
    """Ends the current text; returns False if it was dropped before."""
    with self._changed:
      is_held = bool(self._on_text)
      self._on_text = []
      self._text_pace.done(1)
      return is_held

  def fill_slots(self) -> dict[int, admitted.Work]:
    """Moves due requests to free slots; returns them by slot."""
    with self._changed:
      free = [s for s in range(self._num_slots) if s not in self._running]
      if self._ready_at(len(free)) > time.monotonic():
        return {}
      filled = dict(zip(free, self._waiting.take(len(free))))
      self._running.update(filled)
      return filled

  def empty_slots(self, slots: list[int]) -> list[admitted.Work | None]:
    """Empties slots; returns their requests, or None for dropped ones."""
    with self._changed:
      self._pace.done(len(slots))
      return [self._running.pop(slot, None) for slot in slots]

  def streams(self) -> dict[int, admitted.Work]:
    """Returns the requests in slots that report progress, by slot."""
    with self._changed:
      return {s: w for s, w in self._running.items() if w.on_progress}

  def may_start_another(self) -> bool:
    """Returns True if a text waits, or a slot is free for a new request."""
    with self._changed:
      has_room = len(self._running) < self._num_slots
      return bool(self._texts) or has_room and self._closed_because is None

  # Callers of the methods below hold the lock.

  def _queue(self, method: str) -> waiting.WaitingList:
    return self._texts if method in admitted.TEXTS else self._waiting

  def _held(self, method: str) -> int:
    if method in admitted.TEXTS:
      return len(self._texts) + len(self._on_text)
    if method == admitted.STREAM:
      return len(self.streams())  # Waiting ones count as lm.generate.
    return len(self._waiting) + len(self._running)

  def _ready_at(self, free: int) -> float:
    """Returns `WaitingList.ready_at`; -inf if requests wait after `close`."""
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
