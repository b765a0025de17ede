"""Tests of delayed functions."""

import queue
import time

from absl.testing import absltest

from saxml_ext.client.transport import timer


class TimerTest(absltest.TestCase):
  def test_functions_run_when_due(self):
    delayed = timer.Timer()
    done = queue.Queue()
    begin = time.monotonic()
    for delay in (0.2, 0.1, 0.0, 0.1):
      delayed.call_after(
        delay, lambda d=delay: done.put((d, time.monotonic() - begin))
      )
    got = [done.get(timeout=300) for _ in range(4)]
    self.assertEqual([delay for delay, _ in got], [0.0, 0.1, 0.1, 0.2])
    for delay, seconds in got:
      self.assertGreaterEqual(seconds, delay)

  def test_failure_of_one_does_not_stop_the_others(self):
    delayed = timer.Timer()
    done = queue.Queue()
    with self.assertLogs(level='ERROR') as logs:
      delayed.call_after(0, lambda: 1 // 0)
      delayed.call_after(0.01, lambda: done.put(None))
      done.get(timeout=300)
    self.assertIn('ZeroDivisionError', logs.output[0])


if __name__ == '__main__':
  absltest.main()
