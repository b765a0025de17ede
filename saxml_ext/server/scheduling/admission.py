"""The callers' side of a scheduler: what is let in, and what is held.

Callers may be on any thread; what they share with the scheduler's thread is
guarded by one lock, see `scheduler`.
"""

from collections.abc import Callable, Mapping
from concurrent import futures
import dataclasses
import math
import threading
import time
from typing import Any

import numpy as np

from saxml_ext.common import errors
from saxml_ext.server.scheduling import contract
from saxml_ext.server.scheduling import outcomes
from saxml_ext.server.scheduling import pace
from saxml_ext.server.scheduling import stats
from saxml_ext.server.scheduling import waiting

GENERATE = 'lm.generate'
STREAM = 'lm.generate_stream'
SCORE = 'lm.score'

# Length of a run of one bucket, see `waiting`, in times the slots.
_SLOTS_PER_RUN = 4


@dataclasses.dataclass(frozen=True, eq=False)
class _ScoreRequest:
  """A prefix [T] and the suffix [S] to score after it."""

  prefix: np.ndarray
  suffix: np.ndarray

  @property
  def tokens(self) -> np.ndarray:
    return self.prefix


class Admission:
  """Lets requests in, within bounds, and takes cancelled ones out."""

  def __init__(
    self,
    runner: contract.Runner,
    limit: int,
    buckets: tuple[int, ...],
    patience: float,
    method_stats: Mapping[str, stats.MethodStats],
  ):
    """Holds nothing yet; see `Scheduler` for the arguments."""
    self._runner = runner
    self._limit = limit
    self._stats = method_stats
    self._changed = threading.Condition()
    self._waiting = waiting.WaitingList(
      buckets, patience, _SLOTS_PER_RUN * runner.num_slots
    )
    self._scores = waiting.WaitingList()
    self._running: dict[int, waiting.Work] = {}
    self._scoring: list[waiting.Work] = []
    self._pace = {GENERATE: pace.Pace(), SCORE: pace.Pace()}
    self._closed_because: errors.SaxError | None = None

  def generate(
    self,
    request: Any,
    deadline: float = math.inf,
    *,
    on_progress: Callable[[Any], None] | None = None,
    client: str = '',
    priority: int = 0,
  ) -> futures.Future:
    """Queues a request for generation.

    Args:
      request: an engine request.
      deadline: monotonic time after which the answer is of no use.
      on_progress: called on the scheduler's thread after each call of the
        engine with the engine's progress of this request, if the request asks
        for it (`stream`). It must return at once and not fail: all other
        requests wait meanwhile. Not called once the future is done.
      client: who asks.
      priority: requests with a lower number are served first.

    Returns:
      A future of the engine's result. Cancelling it frees the request's slot.

    Raises:
      errors.InvalidArgument: the engine cannot do what it asks for.
      errors.ResourceExhausted: as many requests as allowed are held.
      errors.Unavailable: the model is being unloaded.
      errors.Internal: its engine has failed.
      errors.DeadlineExceeded: the deadline has passed already.
    """
    try:
      self._runner.check(request)
    except ValueError as e:
      raise errors.InvalidArgument(str(e)) from e
    work = waiting.Work(
      request,
      deadline,
      time.monotonic(),
      client=client,
      priority=priority,
      on_progress=on_progress,
    )
    return self._submit(GENERATE, work)

  def score(
    self,
    prefix: np.ndarray,
    suffix: np.ndarray,
    deadline: float = math.inf,
    *,
    client: str = '',
    priority: int = 0,
  ) -> futures.Future:
    """Queues a score; a future of the log-probability. Raises as above."""
    work = waiting.Work(
      _ScoreRequest(prefix, suffix),
      deadline,
      time.monotonic(),
      client=client,
      priority=priority,
    )
    return self._submit(SCORE, work)

  def check_admission(self, method: str, client: str = '') -> None:
    """Raises what `generate` or `score` would, if it would now.

    For callers to refuse before they spend time on preparing a request.
    """
    with self._changed:
      self._check(method, client)

  def pending(self, method: str) -> int:
    """Requests of a method that wait or run."""
    with self._changed:
      return self._held(method)

  def load(self) -> stats.Load:
    """How much there is to do at this moment."""
    with self._changed:
      return stats.Load(
        queued=len(self._waiting) + len(self._scores),
        running=len(self._running),
        slots=self._runner.num_slots,
      )

  def _submit(self, method: str, work: waiting.Work) -> futures.Future:
    if work.arrived >= work.deadline:
      self._stats[method].expired()
      raise errors.DeadlineExceeded(
        'the deadline had passed when the request arrived; allow it more time'
      )
    queue = self._queue(method)
    with self._changed:
      self._check(method, work.client)
      queue.add(work)
      self._changed.notify()
    # Without the lock, as an answer that is there already calls back at once.
    work.future.add_done_callback(lambda _: self._leave(queue, work))
    return work.future

  def _leave(self, queue: waiting.WaitingList, work: waiting.Work) -> None:
    """Makes room at once when a request is cancelled."""
    if work.future.cancelled():
      with self._changed:
        waits = queue.discard(work)
        runs = not waits and work in self._running.values()
      if runs:
        # The slot is freed as soon as the engine returns.
        self._runner.interrupt()

  def _check(self, method: str, client: str) -> None:
    if self._closed_because is not None:
      raise outcomes.copy(self._closed_because)
    held = self._held(method)
    if held >= self._limit and not self._queue(method).may_exceed(
      client, held, self._limit
    ):
      raise errors.ResourceExhausted(
        f'Too many requests: {held} {method} requests are held and the limit'
        f' is {self._limit} (BATCH_SIZE times MAX_LIVE_BATCHES); try again'
        ' later',
        retry_after=self._pace[method].seconds_per_request(),
      )

  def _queue(self, method: str) -> waiting.WaitingList:
    return self._scores if method == SCORE else self._waiting

  def _held(self, method: str) -> int:
    if method == SCORE:
      return len(self._scores) + len(self._scoring)
    if method == STREAM:  # Those in slots; the others count as lm.generate.
      return sum(w.on_progress is not None for w in self._running.values())
    return len(self._waiting) + len(self._running)

  def _take_all(self) -> list[waiting.Work]:
    taken = self._waiting.remove_all() + self._scores.remove_all()
    taken += self._scoring
    taken += self._running.values()
    self._scoring = []
    self._running = {}
    return taken
