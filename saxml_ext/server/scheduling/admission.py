"""The callers' side of a scheduler: what is let in, and what is held.

Callers may be on any thread; what they share with the scheduler's thread is
guarded by one lock, see `scheduler`.
"""

import collections
from collections.abc import Callable, Mapping
from concurrent import futures
import dataclasses
import math
import threading
import time
from typing import Any, cast

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
EMBED = 'lm.embed'
GRADIENT = 'lm.gradient'
# They take a text at a time, beside the slots, and share one queue.
TEXTS = frozenset({SCORE, EMBED, GRADIENT})

# Length of a run of one bucket, see `waiting`, in times the slots.
_SLOTS_PER_RUN = 4


@dataclasses.dataclass(frozen=True, eq=False)
class TextRequest:
  """What the engine is to do with a whole text.

  Attributes:
    method: of `TEXTS`.
    tokens: the text or its beginning, [T].
    run: does it, and returns the answer.
  """

  method: str
  tokens: np.ndarray
  run: Callable[[], Any]


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
    self._texts = waiting.WaitingList()
    self._text_counts: collections.Counter[str] = collections.Counter()
    self._running: dict[int, waiting.Work] = {}
    self._on_text: list[waiting.Work] = []
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
    """Queues a score; a future of the log-probability. Raises as above.

    Args:
      prefix: [T] int32.
      suffix: [S] int32, what to score after it.
      deadline: as above, as are the next two.
      client: who asks.
      priority: of the request.
    """
    request = TextRequest(
      SCORE, prefix, lambda: self._runner.score(prefix, suffix)
    )
    return self._submit_text(request, deadline, client, priority)

  def embed(
    self,
    tokens: np.ndarray,
    deadline: float = math.inf,
    *,
    client: str = '',
    priority: int = 0,
  ) -> futures.Future:
    """Queues an embedding of a text [T]; a future of [D] float32.

    Raises:
      errors.SaxError: as `generate`.
    """
    runner = cast(contract.TextRunner, self._runner)
    request = TextRequest(EMBED, tokens, lambda: runner.embed(tokens))
    return self._submit_text(request, deadline, client, priority)

  def gradient(
    self,
    prefix: np.ndarray,
    suffix: np.ndarray,
    deadline: float = math.inf,
    *,
    client: str = '',
    priority: int = 0,
  ) -> futures.Future:
    """Queues gradients of a score; arguments and errors are those of `score`.

    Returns:
      A future of the score and of its gradients by name.
    """
    runner = cast(contract.TextRunner, self._runner)
    request = TextRequest(
      GRADIENT, prefix, lambda: runner.gradient(prefix, suffix)
    )
    return self._submit_text(request, deadline, client, priority)

  def _submit_text(
    self, request: TextRequest, deadline: float, client: str, priority: int
  ) -> futures.Future:
    work = waiting.Work(
      request, deadline, time.monotonic(), client=client, priority=priority
    )
    return self._submit(request.method, work)

  def check_admission(self, method: str, client: str = '') -> None:
    """Raises what `generate` or `score` would, if it would now.

    For callers to refuse before they spend time on preparing a request.
    """
    with self._changed:
      self._check(method, client)

  def pending(self, method: str) -> int:
    """Requests of a method that wait or run."""
    with self._changed:
      if method in TEXTS:
        return self._text_counts[method]
      return self._held(method)

  def load(self) -> stats.Load:
    """How much there is to do at this moment."""
    with self._changed:
      return stats.Load(
        queued=len(self._waiting) + len(self._texts),
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
      if method in TEXTS:
        self._text_counts[method] += 1
      self._changed.notify()
    # Without the lock, as an answer that is there already calls back at once.
    work.future.add_done_callback(lambda _: self._leave(method, work))
    return work.future

  def _leave(self, method: str, work: waiting.Work) -> None:
    """Makes room at once when a request is cancelled."""
    if method in TEXTS:
      with self._changed:
        self._text_counts[method] -= 1
    if work.future.cancelled():
      with self._changed:
        waits = self._queue(method).discard(work)
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
        retry_after=self._pace_of(method).seconds_per_request(),
      )

  def _pace_of(self, method: str) -> pace.Pace:
    return self._pace[SCORE if method in TEXTS else GENERATE]

  def _queue(self, method: str) -> waiting.WaitingList:
    return self._texts if method in TEXTS else self._waiting

  def _held(self, method: str) -> int:
    if method in TEXTS:
      return len(self._texts) + len(self._on_text)
    if method == STREAM:  # Those in slots; the others count as lm.generate.
      return sum(w.on_progress is not None for w in self._running.values())
    return len(self._waiting) + len(self._running)

  def _take_all(self) -> list[waiting.Work]:
    taken = self._waiting.remove_all() + self._texts.remove_all()
    taken += self._on_text
    taken += self._running.values()
    self._on_text = []
    self._running = {}
    return taken
