"""Tests of the scheduler with a fake engine that obeys the same contract."""

from concurrent import futures
import functools
import threading
import time
from unittest import mock

from absl.testing import absltest
import numpy as np

from saxml_ext.common import errors
from saxml_ext.server.scheduling import admission
from saxml_ext.server.scheduling import scheduler as scheduler_lib
from saxml_ext.server.scheduling import stats
from saxml_ext.server.testing import fake_runner

# The timeout of a test that hangs.
_TIMEOUT = 300


def _request(*tokens: int) -> fake_runner.Request:
  return fake_runner.Request(np.array(tokens, np.int32))


def _first(future) -> list[int]:
  return future.result(_TIMEOUT).hypotheses[0].tokens.tolist()


class _Clock:
  def __init__(self, now: float):
    self.now = now

  def __call__(self) -> float:
    return self.now


class SchedulerTest(absltest.TestCase):
  def _start(
    self, num_slots=2, steps=1, limit=100, patience=0.0
  ) -> scheduler_lib.Scheduler:
    self.runner = fake_runner.FakeRunner(num_slots, steps)
    self.failures = []
    self.stats = {
      'lm.generate': stats.MethodStats(),
      'lm.score': stats.MethodStats(),
    }
    result = scheduler_lib.Scheduler(
      self.runner,
      limit=limit,
      buckets=(10, 20),
      patience=patience,
      method_stats=self.stats,
      on_failure=self.failures.append,
    )

    def end() -> None:
      self.runner.gate.set()
      result.close(drain=False)

    self.addCleanup(end)
    return result

  def _stop_the_clock(self) -> '_Clock':
    """Stops the scheduler's clock; only the test advances it."""
    clock = _Clock(time.monotonic())
    # The threading module has its own reference to the real clock.
    self.enterContext(mock.patch.object(scheduler_lib.time, 'monotonic', clock))
    return clock

  def _until(self, condition) -> None:
    end = time.perf_counter() + _TIMEOUT
    while not condition():
      self.assertLess(time.perf_counter(), end, 'it never happened')
      time.sleep(0.002)

  def test_many_requests_are_answered_through_few_slots(self):
    scheduler = self._start(num_slots=3, steps=2)
    answers = [scheduler.generate(_request(i, i + 1)) for i in range(40)]
    self.assertEqual(
      [_first(a) for a in answers], [[i + 1, i] for i in range(40)]
    )
    self.assertLen(self.runner.admitted(), 40)
    self.assertEqual(self.runner.threads, {'scheduler'})
    self.assertEqual(max(self.stats['lm.generate'].snapshot().batch_sizes), 3)

  def test_free_slot_is_refilled_while_others_run(self):
    scheduler = self._start(num_slots=2, steps=3)
    self.runner.gate.clear()
    first = scheduler.generate(_request(1))
    self._until(lambda: self.runner.admissions)
    second = scheduler.generate(_request(2))
    third = scheduler.generate(_request(3))
    self.runner.gate.set()
    futures.wait([first, second, third], _TIMEOUT)
    self.assertEqual(self.runner.admitted(), [[1], [2], [3]])
    # Requests 1 and 2 overlap, and request 3 starts while 2 is still running.
    self.assertLess(self.runner.steps, 9)

  def test_excess_requests_are_refused_until_there_is_room(self):
    scheduler = self._start(num_slots=1, limit=3)
    self.runner.gate.clear()
    held = [scheduler.generate(_request(i)) for i in range(3)]
    with self.assertRaisesRegex(
      errors.ResourceExhausted, 'Too many requests: 3 .* limit is 3'
    ):
      scheduler.generate(_request(9))
    with self.assertRaises(errors.ResourceExhausted):
      scheduler.check_admission('lm.generate')
    # The error contains the time of a retry. No request was answered yet.
    with self.assertRaises(errors.ResourceExhausted) as caught:
      scheduler.generate(_request(9))
    self.assertEqual(caught.exception.retry_after, 0.1)
    # The limit is per method.
    scheduler.check_admission('lm.score')
    self.assertEqual(scheduler.pending('lm.generate'), 3)
    self.runner.gate.set()
    futures.wait(held, _TIMEOUT)
    self._until(lambda: not scheduler.pending('lm.generate'))
    self.assertEqual(_first(scheduler.generate(_request(9))), [9])

  def test_refused_requests_get_the_pace_of_answers(self):
    clock = [1000.0]
    paced = functools.partial(admission.Pace, lambda: clock[0])
    with mock.patch.object(admission, 'Pace', paced):
      scheduler = self._start(num_slots=1, limit=2)
    for i in range(5):
      _first(scheduler.generate(_request(i)))
    self._until(lambda: not scheduler.pending('lm.generate'))
    self.runner.gate.clear()
    held = [scheduler.generate(_request(i)) for i in range(2)]
    clock[0] += 3.0
    with self.assertRaises(errors.ResourceExhausted) as caught:
      scheduler.generate(_request(9))
    self.assertAlmostEqual(caught.exception.retry_after, 3.0 / 5)
    self.runner.gate.set()
    futures.wait(held, _TIMEOUT)

  def test_refused_scores_get_the_pace_of_scores(self):
    clock = [1000.0]
    paced = functools.partial(admission.Pace, lambda: clock[0])
    with mock.patch.object(admission, 'Pace', paced):
      scheduler = self._start(num_slots=1, limit=1)
    prefix, suffix = np.arange(3), np.arange(2)
    for _ in range(4):
      scheduler.score(prefix, suffix).result(_TIMEOUT)
      self._until(lambda: not scheduler.pending('lm.score'))
    clock[0] += 8.0
    began, may_end = threading.Event(), threading.Event()
    self.addCleanup(may_end.set)

    def slow_score(prefix, suffix) -> float:
      began.set()
      may_end.wait(_TIMEOUT)
      return -1.0

    self.runner.score = slow_score
    held = scheduler.score(prefix, suffix)
    began.wait(_TIMEOUT)
    with self.assertRaises(errors.ResourceExhausted) as caught:
      scheduler.score(prefix, suffix)
    # There were 4 answers in 8 s. The rate of lm.generate is not used.
    self.assertEqual(caught.exception.retry_after, 2.0)
    may_end.set()
    self.assertEqual(held.result(_TIMEOUT), -1.0)

  def test_request_cancelled_in_the_queue_makes_room_immediately(self):
    scheduler = self._start(num_slots=1, limit=2)
    self.runner.gate.clear()
    running = scheduler.generate(_request(1))
    self._until(lambda: self.runner.admissions)
    for i in range(10):
      queued = scheduler.generate(_request(i))
      self.assertEqual(scheduler.pending('lm.generate'), 2)
      self.assertTrue(queued.cancel())
      self.assertEqual(scheduler.pending('lm.generate'), 1)
    self.runner.gate.set()
    self.assertEqual(_first(running), [1])
    self.assertEqual(self.runner.admitted(), [[1]])

  def test_slots_are_filled_by_length(self):
    scheduler = self._start(num_slots=2)
    self.runner.gate.clear()
    first = scheduler.generate(_request(0))
    self._until(lambda: self.runner.admissions)
    # The buckets end at 10 and 20. Four short and four long prompts alternate.
    prompts = [[i] * (5 if i % 2 else 15) for i in range(1, 9)]
    waiting = [scheduler.generate(_request(*p)) for p in prompts]
    self.runner.gate.set()
    futures.wait([first, *waiting], _TIMEOUT)
    self.assertEqual(
      [len(p) for p in self.runner.admitted()[1:]], [5] * 4 + [15] * 4
    )
    self.assertEqual(
      [p[0] for p in self.runner.admitted()[1:]], [1, 3, 5, 7, 2, 4, 6, 8]
    )

  def test_calls_are_short_while_slots_are_free(self):
    scheduler = self._start(num_slots=2, steps=4)
    self.runner.gate.clear()
    held = [scheduler.generate(_request(1))]
    self._until(lambda: self.runner.max_steps)
    held.append(scheduler.generate(_request(2)))
    self.runner.gate.set()
    futures.wait(held, _TIMEOUT)
    # The first request is alone for one call. Then both slots are occupied.
    self.assertEqual(self.runner.max_steps, [8, None, None, None, 8])

  def test_calls_are_short_while_scores_wait(self):
    scheduler = self._start(num_slots=1, steps=4)
    self.runner.gate.clear()
    held = [scheduler.generate(_request(1))]
    self._until(lambda: self.runner.max_steps)
    held += [scheduler.score(np.arange(3), np.arange(2)) for _ in range(3)]
    self.runner.gate.set()
    futures.wait(held, _TIMEOUT)
    # There is one score before each call.
    self.assertEqual(self.runner.max_steps, [None, 8, 8, None])

  def test_calls_are_long_while_draining(self):
    scheduler = self._start(num_slots=2, steps=3)
    self.runner.gate.clear()
    held = scheduler.generate(_request(1))
    self._until(lambda: self.runner.max_steps)
    closer = threading.Thread(target=scheduler.close, args=(True,))
    closer.start()
    self._until(lambda: self._is_closed(scheduler))
    self.runner.gate.set()
    closer.join(_TIMEOUT)
    self.assertEqual(_first(held), [1])
    self.assertEqual(self.runner.max_steps, [8, None, None])

  def test_request_expired_during_a_score_never_reaches_the_engine(self):
    scheduler = self._start(num_slots=1)
    late: list[futures.Future] = []
    clock = self._stop_the_clock()

    def slow_score(prefix, suffix) -> float:
      late.append(scheduler.generate(_request(2), clock.now + 1.0))
      clock.now += 2.0
      return -1.0

    self.runner.score = slow_score
    score = scheduler.score(np.arange(3), np.arange(2))
    self.assertEqual(score.result(_TIMEOUT), -1.0)
    with self.assertRaises(errors.DeadlineExceeded):
      late[0].result(_TIMEOUT)
    self.assertEmpty(self.runner.admissions)

  def test_request_cancelled_in_the_queue_never_reaches_the_engine(self):
    scheduler = self._start(num_slots=1)
    self.runner.gate.clear()
    running = scheduler.generate(_request(1))
    self._until(lambda: self.runner.admissions)
    queued = scheduler.generate(_request(2))
    last = scheduler.generate(_request(3))
    self.assertTrue(queued.cancel())
    self.runner.gate.set()
    self.assertEqual(_first(running), [1])
    self.assertEqual(_first(last), [3])
    self.assertEqual(self.runner.admitted(), [[1], [3]])

  def test_request_cancelled_in_its_slot_frees_it_within_a_step(self):
    scheduler = self._start(num_slots=1, steps=1000)
    self.runner.gate.clear()
    running = scheduler.generate(_request(1))
    self._until(lambda: self.runner.admissions)
    self.assertTrue(running.cancel())
    self.runner.gate.set()
    self._until(lambda: self.runner.released)
    self.assertEqual(self.runner.released, [0])
    self.assertLessEqual(self.runner.steps, 2)
    self.assertFalse(scheduler.pending('lm.generate'))

  def test_request_expired_in_the_queue_never_reaches_the_engine(self):
    scheduler = self._start(num_slots=1)
    self.runner.gate.clear()
    running = scheduler.generate(_request(1))
    self._until(lambda: self.runner.admissions)
    clock = self._stop_the_clock()
    soon = clock.now + 1.0
    queued = [scheduler.generate(_request(2), soon) for _ in range(5)]
    clock.now = soon
    self.runner.gate.set()
    self.assertEqual(_first(running), [1])
    for future in queued:
      with self.assertRaises(errors.DeadlineExceeded):
        future.result(_TIMEOUT)
    self.assertEqual(self.runner.admitted(), [[1]])
    self.assertEqual(self.stats['lm.generate'].snapshot().expired, 5)

  def test_request_expires_while_it_waits_to_share_a_prefill(self):
    scheduler = self._start(num_slots=2, patience=2 * _TIMEOUT)
    # On a busy machine, the deadline may have passed on arrival.
    with self.assertRaises(errors.DeadlineExceeded):
      scheduler.generate(_request(1), time.monotonic() + 0.2).result(_TIMEOUT)
    self.assertEmpty(self.runner.admissions)

  def test_request_expired_in_its_slot_frees_it(self):
    scheduler = self._start(num_slots=1, steps=10**9)
    clock = self._stop_the_clock()
    future = scheduler.generate(_request(1), clock.now + 1.0)
    self._until(lambda: self.runner.steps)
    clock.now += 1.0
    with self.assertRaises(errors.DeadlineExceeded):
      future.result(_TIMEOUT)
    self.assertEqual(self.runner.released, [0])

  def test_request_expired_on_arrival_is_refused(self):
    scheduler = self._start()
    with self.assertRaises(errors.DeadlineExceeded):
      scheduler.generate(_request(1), time.monotonic() - 1)
    self.assertEqual(self.stats['lm.generate'].snapshot().expired, 1)

  def test_request_waits_to_share_a_prefill_up_to_the_patience(self):
    scheduler = self._start(num_slots=3, patience=2 * _TIMEOUT)
    futures_ = [scheduler.generate(_request(i)) for i in range(3)]
    self.assertEqual([_first(f) for f in futures_], [[0], [1], [2]])
    self.assertLen(self.runner.admissions, 1)
    lone = self._start(num_slots=3, patience=0.05)
    begin = time.monotonic()
    self.assertEqual(_first(lone.generate(_request(7))), [7])
    self.assertGreaterEqual(time.monotonic() - begin, 0.05)

  def test_scores_run_between_decode_calls(self):
    scheduler = self._start(num_slots=1, steps=5)
    generated = scheduler.generate(_request(4, 2))
    score = scheduler.score(np.arange(3), np.arange(2))
    self.assertEqual(score.result(_TIMEOUT), -23.0)
    self.assertEqual(_first(generated), [2, 4])

  def test_engine_failure_fails_everything_with_its_reason(self):
    scheduler = self._start(num_slots=1)
    self.runner.fail_on_step = RuntimeError('out of memory')
    self.runner.gate.clear()
    held = [scheduler.generate(_request(i)) for i in range(3)]
    self.runner.gate.set()
    for future in held:
      with self.assertRaisesRegex(errors.Internal, 'out of memory'):
        future.result(_TIMEOUT)
    self._until(lambda: self.failures)
    self.assertLen(self.failures, 1)
    self.assertIn('RuntimeError: out of memory', self.failures[0])
    with self.assertRaisesRegex(errors.Internal, 'out of memory'):
      scheduler.generate(_request(5))

  def test_draining_answers_pending_requests_and_refuses_new_ones(self):
    scheduler = self._start(num_slots=1, patience=0.01)
    self.runner.gate.clear()
    held = [scheduler.generate(_request(i)) for i in range(5)]
    closer = threading.Thread(target=scheduler.close, args=(True,))
    closer.start()
    self._until(lambda: self._is_closed(scheduler))
    self.assertTrue(closer.is_alive())
    self.runner.gate.set()
    closer.join(_TIMEOUT)
    self.assertFalse(closer.is_alive())
    self.assertEqual([_first(f) for f in held], [[i] for i in range(5)])

  def test_draining_does_not_wait_for_shared_prefills(self):
    scheduler = self._start(num_slots=8, patience=600.0)
    held = [scheduler.generate(_request(i)) for i in range(3)]
    scheduler.close(drain=True)
    self.assertEqual([_first(f) for f in held], [[i] for i in range(3)])

  def test_closing_without_draining_fails_pending_requests(self):
    scheduler = self._start(num_slots=1, steps=10**9)
    held = [scheduler.generate(_request(i)) for i in range(3)]
    scheduler.close(drain=False)
    for future in held:
      with self.assertRaises(errors.Unavailable):
        future.result(_TIMEOUT)

  def test_closing_without_draining_fails_a_running_score(self):
    scheduler = self._start(num_slots=1)
    closer = threading.Thread(target=scheduler.close, args=(False,))

    def slow_score(prefix, suffix) -> float:
      closer.start()
      self._until(lambda: self._is_closed(scheduler) and score.done())
      return -1.0

    self.runner.score = slow_score
    score = scheduler.score(np.arange(3), np.arange(2))
    with self.assertRaises(errors.Unavailable):
      score.result(_TIMEOUT)
    closer.join(_TIMEOUT)
    self.assertFalse(closer.is_alive())
    self.assertEmpty(self.failures)

  def _is_closed(self, scheduler: scheduler_lib.Scheduler) -> bool:
    try:
      scheduler.check_admission('lm.generate')
    except errors.Unavailable:
      return True
    return False


if __name__ == '__main__':
  absltest.main()
