"""Tests of the detection of a call that exceeds its timeout."""

import queue

from absl.testing import absltest

from saxml_ext.groups import ordered_log

_TIMEOUT = 300


class StopwatchTest(absltest.TestCase):
  def test_first_late_call_is_reported(self):
    late = queue.Queue()
    watch = ordered_log.Stopwatch(late.put)
    watch.start()
    with watch.timing(1, 'a step', 1000.0):
      pass
    with watch.timing(2, 'a score', 0.01):
      call = late.get(timeout=_TIMEOUT)
    self.assertEqual(
      (call.sequence, call.what, call.limit), (2, 'a score', 0.01)
    )
    self.assertTrue(late.empty())

  def test_call_that_is_over_is_not_late(self):
    watch = ordered_log.Stopwatch(lambda _: None)
    with self.assertRaises(KeyError), watch.timing(1, 'a step', 0.0):
      raise KeyError
    self.assertIsNone(watch._call)


if __name__ == '__main__':
  absltest.main()
