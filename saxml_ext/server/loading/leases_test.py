"""Tests of `Leases`."""

import threading

from absl.testing import absltest

from saxml_ext.server.loading import servable as servable_lib

_TIMEOUT = 300.0


class LeasesTest(absltest.TestCase):
  def test_wait_ends_after_the_last_call(self):
    leases = servable_lib.Leases()
    leases.enter()
    leases.enter()
    ended = threading.Event()

    def wait() -> None:
      self.assertTrue(leases.wait(linger=0.0, timeout=_TIMEOUT))
      ended.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    leases.leave()
    self.assertFalse(leases.wait(linger=0.0, timeout=0.0))
    self.assertFalse(ended.is_set())
    leases.leave()
    self.assertTrue(ended.wait(_TIMEOUT))
    waiter.join()

  def test_wait_ends_after_the_timeout(self):
    leases = servable_lib.Leases()
    leases.enter()
    self.assertFalse(leases.wait(linger=0.001, timeout=0.01))


if __name__ == '__main__':
  absltest.main()
