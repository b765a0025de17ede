"""The one thread that drives the engine of a model.

A request's life, thread by thread:

  caller's   `generate` (or `score`) refuses what the engine cannot do. It adds
             a `Work` to the `Admission`, which refuses what is beyond the
             limit and wakes the scheduler's thread. The caller gets the work's
             future. In a server, this thread is the event loop, see
             `services/calls.py`; it may be any thread.
  scheduler  `_run` goes round as long as there is work. Each round it
             1. drops the dead: `_drop_dead` fails what has expired and frees
                the slots of requests that expired or were cancelled,
             2. scores (embeds, differentiates) a text: `_run_one_text`, one at
                a time, so that it delays decoding by no more than itself,
             3. fills slots: `_fill_slots` takes requests from the waiting list
                for the free slots and has the engine prefill them,
             4. decodes: `_decode` lets the engine step until a slot has
                finished or a few steps are done, and sets the futures of those
                that have. Their slots are free in the next round.
             It sleeps while there is nothing to do, or until company has come
             for a request that may wait for some.
  any        A future may be cancelled until its result is there. While it
             waits it leaves the list at once. In a slot, the engine is
             interrupted: it returns after its present step, and the slot is
             free before the next one.

Who wants to see an answer grow (`on_progress`) is told after each call of the
engine, which then makes `stream_interval` steps instead of a few dozen.

Nothing but the scheduler's thread calls the engine, `group_engine.Runner.check`
and `interrupt` excepted. What it shares with callers is in the `Admission`, which
has a lock.

What Sax's attributes of serving params mean here, where a batch is no longer
a unit that starts and ends together:

  BATCH_SIZE        slots, each refilled when it becomes free; of several values
                    the largest. NUM_CACHE_SLOTS, if set, takes its place.
  BATCH_WAIT_SECS   `patience`: so long a request may wait until as many wait
                    as there are free slots, to share a prefill. Nobody waits
                    for company that cannot come.
  MAX_LIVE_BATCHES  times the slots it is `limit`: requests of one method held.
                    Further ones are refused and told when to come again.
  BUCKET_KEYS       `buckets`: lengths that prompts are padded to. Requests of
                    one bucket are admitted in runs, see `waiting`.
  MAX_DECODE_STEPS  the most tokens of an answer; of several values the
                    largest. A request may ask for less.
  STREAM_INTERVAL_STEPS  `stream_interval`: steps between messages of a stream.
"""

from collections.abc import Callable, Mapping
from concurrent import futures
import dataclasses
import math
import random
import threading
import time
from typing import Any, TypeAlias

from absl import logging
import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.groups import group_engine
from saxml_ext.server.scheduling import admission
from saxml_ext.server.scheduling import admitted
from saxml_ext.server.scheduling import stats

Runner: TypeAlias = group_engine.Runner
GENERATE = admitted.GENERATE
SCORE = admitted.SCORE
STREAM = admitted.STREAM
EMBED = admitted.EMBED
GRADIENT = admitted.GRADIENT

# Decode steps of a call while something else could be done between two: a
# request that arrives could have a free slot, a score waits. More would make
# it wait, fewer would cost more calls. With all slots taken a call ends early
# anyway when one of them finishes, so the engine's own bound is the best.
_SHORT_CALL = 8

_IN_QUEUE = 'the deadline passed while the request waited for a free slot'
_IN_SLOT = 'the deadline passed while the answer was being decoded'


@dataclasses.dataclass(frozen=True, eq=False)
class _Text:
  """A computation on a whole text.

  Attributes:
    tokens: the text or its beginning, [T].
    run: does it, and returns the answer.
  """

  tokens: np.ndarray
  run: Callable[[], Any]


class Scheduler:
  """Queues, batches and answers the requests of one model."""

  def __init__(
    self,
    runner: Runner,
    *,
    limit: int,
    buckets: tuple[int, ...],
    patience: float = 0.0,
    stream_interval: int = 1,
    seed: int | None = None,
    method_stats: Mapping[str, stats.MethodStats],
    on_failure: Callable[[str], None],
  ):
    """Starts the thread.

    Args:
      runner: the engine; from here on only the thread touches it, but for
        `check` and `interrupt`.
      limit: requests of one method held, waiting or in a slot, before further
        ones are refused.
      buckets: padded prompt lengths, ascending.
      patience: seconds a request may wait for company.
      stream_interval: decode steps between two reports of progress.
      seed: The seed of the seeds of requests that have none, which get them in
        the order of admission as in stock Sax. So the same requests get the
        same samples if they come one after the other. None: the engine draws
        them at random.
      method_stats: by method, for batch sizes and expired requests.
      on_failure: called once with the reason if the engine fails.
    """
    self._runner = runner
    self._admission = admission.Admission(
      runner.num_slots, limit, buckets, patience
    )
    self._stats = method_stats
    self._on_failure = on_failure
    self._stream_interval = stream_interval
    self._seeds = None if seed is None else random.Random(seed)
    self._thread = threading.Thread(
      target=self._run, name='scheduler', daemon=True
    )
    self._thread.start()

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
    return self._submit(
      GENERATE, request, deadline, client, priority, on_progress
    )

  def score(
    self,
    prefix: np.ndarray,
    suffix: np.ndarray,
    deadline: float = math.inf,
    client: str = '',
  ) -> futures.Future:
    """Queues a score; a future of the log-probability. Raises as above.

    Args:
      prefix: [T] int32.
      suffix: [S] int32, to be scored after it.
      deadline: as above.
      client: who asks.
    """
    text = _Text(prefix, lambda: self._runner.score(prefix, suffix))
    return self._submit(SCORE, text, deadline, client)

  def embed(
    self, tokens: np.ndarray, deadline: float = math.inf, client: str = ''
  ) -> futures.Future:
    """Queues an embedding of a text [T]; a future of [D] float32.

    Raises:
      errors.SaxError: as `generate`.
    """
    runner: Any = self._runner  # Models without the method are not asked.
    text = _Text(tokens, lambda: runner.embed(tokens))
    return self._submit(EMBED, text, deadline, client)

  def gradient(
    self,
    prefix: np.ndarray,
    suffix: np.ndarray,
    deadline: float = math.inf,
    client: str = '',
  ) -> futures.Future:
    """Queues gradients of a score; arguments and errors are those of `score`.

    Returns:
      A future of the score and of its gradients by name.
    """
    runner: Any = self._runner
    text = _Text(prefix, lambda: runner.gradient(prefix, suffix))
    return self._submit(GRADIENT, text, deadline, client)

  def check_admission(self, method: str, client: str = '') -> None:
    """Raises what `generate` or `score` would, if it would now.

    For callers to refuse before they spend time on preparing a request.
    """
    self._admission.check(method, client)

  def pending(self, method: str) -> int:
    """Returns how many requests of a method wait or run."""
    return self._admission.pending(method)

  def load(self) -> stats.Load:
    """Returns how much there is to do at this moment."""
    return self._admission.load()

  def close(self, drain: bool) -> None:
    """Stops the thread; returns when it has ended.

    Args:
      drain: finish what is held; else it fails with UNAVAILABLE.
    """
    reason = errors.Unavailable(
      'the model is being unloaded; ask another replica'
    )
    for work in self._admission.close(reason, drain):
      work.fail(reason)
    self._thread.join()

  def _submit(
    self,
    method: str,
    request: Any,
    deadline: float,
    client: str,
    priority: int = 0,
    on_progress: Callable[[Any], None] | None = None,
  ) -> futures.Future:
    work = admitted.Work(
      request,
      deadline,
      time.monotonic(),
      method,
      client,
      priority,
      on_progress,
    )
    if work.arrived >= deadline:
      self._stats[method].expired()
      raise errors.DeadlineExceeded(
        'the deadline had passed when the request arrived; allow it more time'
      )
    self._admission.add(work)
    work.future.add_done_callback(lambda _: self._leave(work))
    return work.future

  def _leave(self, work: admitted.Work) -> None:
    if self._admission.forget(work):
      # The slot is freed as soon as the engine returns.
      self._runner.interrupt()

  # Below: on the scheduler's thread only.

  def _run(self) -> None:
    try:
      while self._admission.wait():
        self._drop_dead()
        if self._run_one_text():
          self._drop_dead()  # Some may have died meanwhile.
        self._fill_slots()
        self._decode()
    except Exception as e:  # pylint: disable=broad-exception-caught
      # The state on the device is unknown now: nothing more can be answered.
      logging.exception('the engine failed')
      reason = errors.Internal(f'the engine failed: {type(e).__name__}: {e}')
      for work in self._admission.fail(reason):
        work.fail(reason)
      self._on_failure(reason.message)

  def _drop_dead(self) -> None:
    """Forgets expired requests and frees the slots that nobody waits for."""
    waited, ran = self._admission.remove_dead()
    for slot in ran:
      self._runner.release(slot)
    for work in waited:
      self._stats[work.method].expired()
      work.fail(errors.DeadlineExceeded(_IN_QUEUE))
    for work in ran.values():
      work.fail(errors.DeadlineExceeded(_IN_SLOT))

  def _run_one_text(self) -> bool:
    """Scores, embeds or differentiates the next text; False if none waits."""
    work = self._admission.begin_text()
    if work is None:
      return False
    result = work.request.run()
    self._stats[work.method].batch(1)
    if self._admission.end_text():
      work.finish(result, self._stats[SCORE])
    return True

  def _fill_slots(self) -> None:
    """Has the engine prefill the requests that are due, if slots are free."""
    filled = self._admission.fill_slots()
    if not filled:
      return
    now = time.monotonic()
    for work in filled.values():
      work.in_slot = now
      if self._seeds:
        work.request = request_options.with_seed(
          work.request, self._seeds.getrandbits
        )
    self._runner.prefill_and_insert(
      {slot: work.request for slot, work in filled.items()}
    )
    now = time.monotonic()
    for work in filled.values():
      work.prefilled = now
    self._stats[GENERATE].batch(self.load().running)

  def _decode(self) -> None:
    """Decodes for some steps and answers the requests that have finished."""
    if not self.load().running:
      return
    results = self._runner.step(self._max_steps())
    self._tell_progress()
    ended = self._admission.empty_slots(list(results))
    for work, result in zip(ended, results.values()):
      if work is not None:
        work.finish(result, self._stats[GENERATE])

  def _tell_progress(self) -> None:
    progress = self._runner.progress
    for slot, work in self._admission.streams().items():
      if slot in progress:
        work.report(progress[slot])

  def _max_steps(self) -> int | None:
    if self._admission.streams():
      return self._stream_interval
    return _SHORT_CALL if self._admission.may_start_another() else None
