"""Runs the single thread that drives the engine of a model.

A request passes through these threads:

  caller's   `generate` (or `score`) refuses requests that the engine does not
             support. It adds a `Work` to the `Admission`, which refuses
             requests above the limit and wakes the scheduler's thread. The
             caller gets the future of the work. In a server, this thread is the
             event loop, see `services/calls.py`. Any thread may call it.
  scheduler  `_run` loops while there are requests. In each round, it
             1. drops dead requests: `_drop_dead` fails expired requests and
                frees the slots of expired or cancelled requests.
             2. scores, embeds or differentiates a text: `_run_one_text`
                processes one text at a time, to limit the delay of decoding.
             3. fills slots: `_fill_slots` takes requests from the waiting list
                for the free slots and lets the engine prefill them.
             4. decodes: `_decode` lets the engine step until a slot has
                finished or a few steps are done. It sets the futures of the
                finished requests. Their slots are free in the next round.
             The thread sleeps while there is nothing to do. It also sleeps
             while a request may wait for others to share its prefill.
  any        A future may be cancelled until its result is set. A waiting
             request leaves the list at once. For a request in a slot, the
             engine is interrupted. It returns after the current step, and the
             slot is free before the next step.

A request can ask for its progress (`on_progress`). Its progress is reported
after each call of the engine. The engine then makes `stream_interval` steps per
call instead of a few dozen.

Only the scheduler's thread calls the engine, except for
`group_engine.Runner.check` and `interrupt`. The `Admission` holds all data that
the thread shares with callers, and it has a lock.

Sax's attributes of serving params assume that a batch starts and ends as a
unit. In this scheduler, they have these meanings:

  BATCH_SIZE        The number of slots. Each is refilled when it becomes free.
                    If there are several values, the largest counts.
                    NUM_CACHE_SLOTS, if set, replaces it.
  BATCH_WAIT_SECS   `patience`: the seconds that a request may wait for others
                    to share its prefill. The wait ends when there are as many
                    requests as free slots. No request waits if no other can
                    come.
  MAX_LIVE_BATCHES  The `limit` of pending requests per method is this number
                    times the number of slots. Further requests are refused
                    with the time of a retry.
  BUCKET_KEYS       `buckets`: the lengths to which prompts are padded. Requests
                    of one bucket are admitted in runs, see `waiting`.
  MAX_DECODE_STEPS  The maximum number of tokens of an answer. If there are
                    several values, the largest counts. A request may set a
                    lower limit.
  STREAM_INTERVAL_STEPS  `stream_interval`: the steps between messages of a
                    stream.
"""

from collections.abc import Callable, Mapping
from concurrent import futures
import dataclasses
import math
import random
import threading
import time
from typing import Any, Protocol, runtime_checkable, TypeAlias

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

# The decode steps per call if a new request could get a free slot or a text
# waits. More steps would delay them, and fewer steps would need more calls. If
# all slots are occupied, no limit is needed, because the call ends when a slot
# finishes.
SHORT_CALL = 8

_IN_QUEUE = 'the deadline passed while the request waited for a free slot'
_IN_SLOT = 'the deadline passed while the answer was being decoded'


@runtime_checkable
class _TextRunner(Protocol):
  """An engine on one host, which embeds and differentiates texts."""

  def embed(self, tokens: np.ndarray) -> np.ndarray:
    """Returns the embedding of a text [T] as [D] float32."""

  def gradient(
    self, prefix: np.ndarray, suffix: np.ndarray
  ) -> tuple[float, Mapping[str, np.ndarray]]:
    """Returns log p(suffix | prefix) and its gradients by name."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Text:
  """A computation on a whole text.

  Attributes:
    tokens: The text or its beginning, [T].
    run: A function that makes the computation and returns the answer.
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
    short_call: int = SHORT_CALL,
    seed: int | None = None,
    method_stats: Mapping[str, stats.MethodStats],
    on_failure: Callable[[str], None],
  ):
    """Starts the thread.

    Args:
      runner: The engine. From now on, only the thread calls it, except for
        `check` and `interrupt`.
      limit: The maximum number of pending requests per method, waiting or in
        slots.
      buckets: The padded prompt lengths, ascending.
      patience: The seconds that a request may wait to share a prefill.
      stream_interval: The decode steps between two progress reports.
      short_call: The decode steps of a call if another request could start.
      seed: The seed from which requests without a seed get one, in the order of
        admission as in stock Sax. So the same sequence of requests gets the
        same samples. With None, the engine draws random seeds.
      method_stats: The counters of batch sizes and expired requests, by method.
      on_failure: A function that is called once with the reason if the engine
        fails.
    """
    self._runner = runner
    self._admission = admission.Admission(
      runner.num_slots, limit, buckets, patience
    )
    self._stats = method_stats
    self._on_failure = on_failure
    self._stream_interval = stream_interval
    self._short_call = short_call
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
      request: The engine's request.
      deadline: The monotonic time at which the request expires.
      on_progress: A function that is called with the request's progress, if the
        request has `stream` set. The scheduler's thread calls it after each
        call of the engine. It must return at once and must not fail, because
        all other requests wait for it. It is not called after the future is
        done.
      client: The name of the caller.
      priority: The priority; requests with a lower number are served first.

    Returns:
      A future of the engine's result. Cancelling it frees the request's slot.

    Raises:
      errors.InvalidArgument: The engine does not support the request.
      errors.ResourceExhausted: The limit of pending requests is reached.
      errors.Unavailable: The model is being unloaded.
      errors.Internal: The engine has failed.
      errors.DeadlineExceeded: The deadline has already passed.
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
    """Queues a score and returns a future of the log-probability.

    Args:
      prefix: The prefix, [T] int32.
      suffix: The suffix to score after the prefix, [S] int32.
      deadline: The monotonic time at which the request expires.
      client: The name of the caller.

    Raises:
      errors.SaxError: The request is refused, see `generate`.
    """
    text = _Text(prefix, lambda: self._runner.score(prefix, suffix))
    return self._submit(SCORE, text, deadline, client)

  def embed(
    self, tokens: np.ndarray, deadline: float = math.inf, client: str = ''
  ) -> futures.Future:
    """Queues an embedding of a text [T]; returns a future of [D] float32.

    Raises:
      errors.SaxError: The request is refused, see `generate`.
    """
    text = _Text(tokens, lambda: self._text_runner.embed(tokens))
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
      A future of the score and its gradients by name.
    """
    text = _Text(prefix, lambda: self._text_runner.gradient(prefix, suffix))
    return self._submit(GRADIENT, text, deadline, client)

  def check_admission(self, method: str, client: str = '') -> None:
    """Raises the error that `generate` or `score` would raise now.

    Callers can refuse a request before they spend time on its preparation.
    """
    self._admission.check(method, client)

  def pending(self, method: str) -> int:
    """Returns the number of requests of a method that wait or run."""
    return self._admission.pending(method)

  def load(self) -> stats.Load:
    """Returns the numbers of waiting and running requests."""
    return self._admission.load()

  def close(self, drain: bool) -> None:
    """Stops the thread; returns when it has ended.

    Args:
      drain: True if pending requests are answered first; otherwise they fail
        with UNAVAILABLE.
    """
    reason = errors.Unavailable(
      'the model is being unloaded. Use another replica.'
    )
    for work in self._admission.close(reason, drain):
      work.fail(reason)
    self._thread.join()

  @property
  def _text_runner(self) -> _TextRunner:
    # The loader refuses `embed` and `gradient` for engines without them.
    assert isinstance(self._runner, _TextRunner)
    return self._runner

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
      request, deadline, time.monotonic(), method, client, priority, on_progress
    )
    if work.arrived >= deadline:
      self._stats[method].expired()
      raise errors.DeadlineExceeded(
        'the deadline had passed when the request arrived. Set a later one.'
      )
    self._admission.add(work)
    work.future.add_done_callback(lambda _: self._leave(work))
    return work.future

  def _leave(self, work: admitted.Work) -> None:
    if self._admission.forget(work):
      # The slot is freed as soon as the engine returns.
      self._runner.interrupt()

  # Only the scheduler's thread calls the methods below.

  def _run(self) -> None:
    try:
      while self._admission.wait():
        self._drop_dead()
        if self._run_one_text():
          self._drop_dead()  # More may be dead after the text.
        self._fill_slots()
        self._decode()
    except Exception as e:  # pylint: disable=broad-exception-caught
      # The state on the device is unknown now, so no request can be answered.
      logging.exception('the engine failed')
      reason = errors.Internal(f'the engine failed: {type(e).__name__}: {e}')
      for work in self._admission.fail(reason):
        work.fail(reason)
      self._on_failure(reason.message)

  def _drop_dead(self) -> None:
    """Removes expired and cancelled requests and frees their slots."""
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
    """Lets the engine prefill the due requests if slots are free."""
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
    self._report_progress()
    ended = self._admission.empty_slots(list(results))
    for work, result in zip(ended, results.values()):
      if work is not None:
        work.finish(result, self._stats[GENERATE])

  def _report_progress(self) -> None:
    progress = self._runner.progress
    for slot, work in self._admission.streams().items():
      if slot in progress:
        work.report(progress[slot])

  def _max_steps(self) -> int | None:
    if self._admission.streams():
      return self._stream_interval
    return self._short_call if self._admission.may_start_another() else None
