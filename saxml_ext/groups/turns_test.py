"""Tests of `FairLock`."""

import threading
import time

from absl.testing import absltest

from saxml_ext.groups import ordered_log

_TIMEOUT = 300


class FairLockTest(absltest.TestCase):
  def test_lock_is_given_in_order_of_requests(self):
    lock = ordered_log.FairLock()
    order = []

    def take(name):
      with lock:
        order.append(name)

    threads = []
    with lock:
      for name in range(5):
        thread = threading.Thread(target=take, args=(name,))
        thread.start()
        threads.append(thread)
        while len(lock._waiting) <= name:
          time.sleep(0.001)
      self.assertEmpty(order)
    # This thread must wait for the earlier ones, even if it is faster.
    take('last')
    for thread in threads:
      thread.join(_TIMEOUT)
    self.assertEqual(order, [0, 1, 2, 3, 4, 'last'])

  def test_error_gives_it_back(self):
    lock = ordered_log.FairLock()
    with self.assertRaises(KeyError), lock:
      raise KeyError
    with lock:
      pass

  def test_one_at_a_time(self):
    lock = ordered_log.FairLock()
    inside = 0
    most = 0

    def work():
      nonlocal inside, most
      for _ in range(500):
        with lock:
          inside += 1
          most = max(most, inside)
          inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join(_TIMEOUT)
    self.assertEqual((inside, most), (0, 1))


if __name__ == '__main__':
  absltest.main()
