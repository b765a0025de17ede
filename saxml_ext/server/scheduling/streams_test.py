"""Tests of the scheduler with streams and cancelled requests."""

import dataclasses
import threading
import time

from absl.testing import absltest
import numpy as np

from saxml_ext.server.scheduling import scheduler as scheduler_lib
from saxml_ext.server.scheduling import stats
from saxml_ext.server.testing import fake_runner

# The timeout of a test that hangs.
_TIMEOUT = 300


@dataclasses.dataclass(frozen=True)
class _Stream(fake_runner.Request):
  stream: bool = True


def _stream(*tokens: int) -> _Stream:
  return _Stream(np.array(tokens, np.int32))


def _request(*tokens: int) -> fake_runner.Request:
  return fake_runner.Request(np.array(tokens, np.int32))


class StreamsTest(absltest.TestCase):
  def _start(self, num_slots=2, steps=3, stream_interval=1):
    self.runner = fake_runner.FakeRunner(num_slots, steps)
    result = scheduler_lib.Scheduler(
      self.runner,
      limit=100,
      buckets=(10,),
      stream_interval=stream_interval,
      method_stats={m: stats.MethodStats() for m in ('lm.generate',)},
      on_failure=self.fail,
    )

    def end() -> None:
      self.runner.gate.set()
      result.close(drain=False)

    self.addCleanup(end)
    return result

  def _until(self, condition) -> None:
    end = time.monotonic() + _TIMEOUT
    while not condition():
      self.assertLess(time.monotonic(), end, 'it never happened')
      time.sleep(0.002)

  def test_progress_is_reported_after_each_step_but_the_last(self):
    scheduler = self._start(steps=3)
    reports = []
    future = scheduler.generate(
      _stream(1, 2, 3),
      on_progress=lambda p: reports.append(
        (p.rows[0].tokens.tolist(), threading.current_thread().name)
      ),
    )
    best = future.result(_TIMEOUT).hypotheses[0]
    self.assertEqual(best.tokens.tolist(), [3, 2, 1])
    self.assertEqual(reports, [([3], 'scheduler'), ([3, 2], 'scheduler')])

  def test_calls_take_the_stream_interval_while_a_stream_runs(self):
    scheduler = self._start(num_slots=1, steps=3, stream_interval=5)
    scheduler.generate(_stream(1), on_progress=lambda _: None).result(_TIMEOUT)
    scheduler.generate(_request(1)).result(_TIMEOUT)
    self.assertEqual(self.runner.max_steps, [5, 5, 5, None, None, None])

  def test_other_requests_get_no_progress(self):
    scheduler = self._start(steps=4)
    reports: list[int] = []
    mine = scheduler.generate(
      _stream(1, 2), on_progress=lambda _: reports.append(1)
    )
    other = scheduler.generate(_request(5, 6))
    self.assertEqual(
      other.result(_TIMEOUT).hypotheses[0].tokens.tolist(), [6, 5]
    )
    mine.result(_TIMEOUT)
    self.assertLen(reports, 3)

  def test_request_cancelled_in_its_slot_interrupts_the_engine(self):
    scheduler = self._start(num_slots=1, steps=10**9)
    self.runner.gate.clear()
    reports: list[int] = []
    running = scheduler.generate(
      _stream(1), on_progress=lambda _: reports.append(1)
    )
    self._until(lambda: self.runner.max_steps)
    before = len(self.runner.max_steps)
    self.assertTrue(running.cancel())
    self.assertEqual(self.runner.interrupts, 1)
    self.runner.gate.set()
    self._until(lambda: self.runner.released)
    # The step in progress was the last one.
    self.assertLen(self.runner.max_steps, before)
    self.assertEmpty(reports)

  def test_request_cancelled_in_the_queue_interrupts_no_call(self):
    scheduler = self._start(num_slots=1)
    self.runner.gate.clear()
    running = scheduler.generate(_request(1))
    self._until(lambda: self.runner.max_steps)
    self.assertTrue(scheduler.generate(_request(2)).cancel())
    self.assertEqual(self.runner.interrupts, 0)
    self.runner.gate.set()
    running.result(_TIMEOUT)

  def test_client_and_priority_decide_the_order(self):
    scheduler = self._start(num_slots=1, steps=1)
    self.runner.gate.clear()
    held = [scheduler.generate(_request(1))]
    self._until(lambda: self.runner.max_steps)
    held += [scheduler.generate(_request(i), client='a') for i in (2, 3)]
    held.append(scheduler.generate(_request(4), client='b'))
    held.append(scheduler.generate(_request(5), client='c', priority=-1))
    self.runner.gate.set()
    for future in held:
      future.result(_TIMEOUT)
    order = [tokens[0] for tokens in self.runner.admitted()]
    self.assertEqual(order[:2], [1, 5])
    self.assertLess(order.index(4), order.index(3))

  def test_streams_in_slots_are_pending(self):
    scheduler = self._start(num_slots=2, steps=10**9)
    scheduler.generate(_stream(1), on_progress=lambda _: None)
    scheduler.generate(_request(2))
    self._until(lambda: len(self.runner.admitted()) == 2)
    self.assertEqual(scheduler.pending('lm.generate'), 2)
    self.assertEqual(scheduler.pending('lm.generate_stream'), 1)


if __name__ == '__main__':
  absltest.main()
