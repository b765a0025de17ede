"""The one thread that drives the engine of a model.

A request's life, thread by thread:

  caller's   `generate` (or `score`), see `admission`, refuses what the engine
             cannot do and what is beyond the bound, puts a `waiting.Work` on
             the waiting list, wakes the scheduler's thread and returns the
             work's future. This is the event loop in a server, see
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

Nothing but the scheduler's thread calls the engine, `contract.Runner.check` and
`interrupt` excepted.
What it shares with callers is guarded by one lock, which is never held during
a call of the engine or of somebody's callback.

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
import math
import threading
import time

from absl import logging

from saxml_ext.common import errors
from saxml_ext.server.scheduling import admission
from saxml_ext.server.scheduling import contract
from saxml_ext.server.scheduling import outcomes
from saxml_ext.server.scheduling import stats

GENERATE = admission.GENERATE
SCORE = admission.SCORE
STREAM = admission.STREAM
EMBED = admission.EMBED
GRADIENT = admission.GRADIENT

# Decode steps of a call while something else could be done between two: a
# request that arrives could have a free slot, a score waits. More would make
# it wait, fewer would cost more calls. With all slots taken a call ends early
# anyway when one of them finishes, so the engine's own bound is the best.
_SHORT_CALL = 8

_IN_QUEUE = 'the deadline passed while the request waited for a free slot'
_IN_SLOT = 'the deadline passed while the answer was being decoded'


class Scheduler(admission.Admission):
  """Queues, batches and answers the requests of one model."""

  def __init__(
    self,
    runner: contract.Runner,
    *,
    limit: int,
    buckets: tuple[int, ...],
    patience: float = 0.0,
    stream_interval: int = 1,
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
      method_stats: by method, for batch sizes and expired requests.
      on_failure: called once with the reason if the engine fails.
    """
    super().__init__(runner, limit, buckets, patience, method_stats)
    self._on_failure = on_failure
    self._stream_interval = stream_interval
    self._thread = threading.Thread(
      target=self._run, name='scheduler', daemon=True
    )
    self._thread.start()

  def close(self, drain: bool) -> None:
    """Stops the thread; returns when it has ended.

    Args:
      drain: finish what is held; else it fails with UNAVAILABLE.
    """
    with self._changed:
      if self._closed_because is None:
        self._closed_because = errors.Unavailable(
          'the model is being unloaded; ask another replica'
        )
      dropped = [] if drain else self._take_all()
      self._changed.notify()
    for work in dropped:
      outcomes.fail(work, self._closed_because)
    self._thread.join()

  # Below: on the scheduler's thread only.

  def _run(self) -> None:
    try:
      while self._sleep_until_work():
        self._drop_dead()
        if self._run_one_text():
          self._drop_dead()  # Some may have died meanwhile.
        self._fill_slots()
        self._decode()
    except Exception as e:  # pylint: disable=broad-exception-caught
      # The state on the device is unknown now: nothing more can be answered.
      logging.exception('the engine failed')
      reason = f'the engine failed: {type(e).__name__}: {e}'
      with self._changed:
        self._closed_because = errors.Internal(reason)
        failed = self._take_all()
      for work in failed:
        outcomes.fail(work, self._closed_because)
      self._on_failure(reason)

  def _sleep_until_work(self) -> bool:
    """Waits for something to do; False when closed and all is done."""
    with self._changed:
      while not self._running and not self._texts:
        if self._closed_because is not None and not self._waiting:
          return False
        now = time.monotonic()
        wake = min(
          self._ready_at(self._runner.num_slots),
          self._waiting.next_deadline(),
        )
        if wake <= now:
          return True
        self._changed.wait(None if wake == math.inf else wake - now)
      return True

  def _ready_at(self, free: int) -> float:
    """See `WaitingList.ready_at`; no company comes once this is closed."""
    ready = self._waiting.ready_at(free)
    if self._closed_because is not None and ready < math.inf:
      return -math.inf
    return ready

  def _drop_dead(self) -> None:
    """Forgets expired requests and frees the slots that nobody waits for."""
    now = time.monotonic()
    with self._changed:
      late = [
        (method, work)
        for method, queue in (
          (GENERATE, self._waiting),
          (None, self._texts),
        )
        for work in queue.remove_expired(now)
      ]
      slots = [s for s, w in self._running.items() if w.is_dead(now)]
      running = [self._running.pop(slot) for slot in slots]
    for slot in slots:
      self._runner.release(slot)
    for method, work in late:
      self._stats[method or work.request.method].expired()
      outcomes.fail(work, errors.DeadlineExceeded(_IN_QUEUE))
    for work in running:
      outcomes.fail(work, errors.DeadlineExceeded(_IN_SLOT))

  def _run_one_text(self) -> bool:
    """Scores, embeds or differentiates the next text; False if none waits."""
    with self._changed:
      self._on_text = self._texts.take(1)
    for work in self._on_text:
      result = work.request.run()
      self._stats[work.request.method].batch(1)
      with self._changed:
        # Empty if it was closed meanwhile, which has failed the request.
        is_held = bool(self._on_text)
        self._on_text = []
        self._pace[SCORE].done(1)
      if is_held:
        work.timeline.answered(self._stats[SCORE], work.request, result)
        outcomes.finish(work, result)
      return True
    return False

  def _fill_slots(self) -> None:
    """Moves requests from the waiting list to free slots, if it is time to."""
    with self._changed:
      free = [
        slot
        for slot in range(self._runner.num_slots)
        if slot not in self._running
      ]
      if self._ready_at(len(free)) > time.monotonic():
        return
      filled = dict(zip(free, self._waiting.take(len(free))))
      self._running.update(filled)
    for work in filled.values():
      work.timeline.admitted()
    self._runner.prefill_and_insert(
      {slot: work.request for slot, work in filled.items()}
    )
    for work in filled.values():
      work.timeline.prefilled()
    self._stats[GENERATE].batch(len(self._running))

  def _decode(self) -> None:
    """Decodes for some steps and answers the requests that have finished."""
    if not self._running:
      return
    results = self._runner.step(self._max_steps())
    self._tell_progress()
    with self._changed:
      # None if it was closed meanwhile.
      done = [(self._running.pop(s, None), r) for s, r in results.items()]
      self._pace[GENERATE].done(len(done))
    for work, result in done:
      if work is not None:
        work.timeline.answered(self._stats[GENERATE], work.request, result)
        outcomes.finish(work, result)

  def _tell_progress(self) -> None:
    with self._changed:
      listening = {
        slot: work
        for slot, work in self._running.items()
        if work.on_progress is not None and not work.future.cancelled()
      }
    if not listening:
      return
    progress = self._runner.progress
    for slot, work in listening.items():
      if slot in progress and work.on_progress is not None:
        work.timeline.first_token()
        work.on_progress(progress[slot])

  def _max_steps(self) -> int | None:
    with self._changed:
      if any(w.on_progress is not None for w in self._running.values()):
        return self._stream_interval
      has_room = len(self._running) < self._runner.num_slots
      could_fill = has_room and self._closed_because is None
      return _SHORT_CALL if could_fill or self._texts else None
