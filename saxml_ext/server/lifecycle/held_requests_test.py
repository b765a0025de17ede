"""Tests of `Hold`."""

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.server.lifecycle import entry as entry_lib


class HoldTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.hold = entry_lib.Hold('/sax/test/m', limit=2)

  def test_release_continues_all_requests(self):
    first, second = self.hold.wait(), self.hold.wait()
    self.assertFalse(first.done())
    self.hold.release()
    self.assertIsNone(first.result(0))
    self.assertIsNone(second.result(0))
    self.assertTrue(self.hold.wait().done())
    self.hold.release()

  def test_excess_requests_are_refused_with_a_retry_delay(self):
    first = self.hold.wait()
    self.hold.wait()
    with self.assertRaisesRegex(errors.ResourceExhausted, '2 wait') as caught:
      self.hold.wait()
    self.assertGreater(caught.exception.retry_after, 0)
    first.cancel()
    self.hold.wait()

  def test_cancelled_request_is_skipped(self):
    cancelled = self.hold.wait()
    cancelled.cancel()
    self.hold.release()
    self.assertTrue(cancelled.cancelled())


if __name__ == '__main__':
  absltest.main()
