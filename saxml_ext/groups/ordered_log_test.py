"""Tests of the order of entries and calls, and of late calls."""

import queue
import threading
import time

from absl.testing import absltest

from saxml_ext.groups import followers as members_lib
from saxml_ext.groups import group_engine
from saxml_ext.groups import ordered_log
from saxml_ext.protobuf import group_pb2

_TIMEOUT = 300


class _Member(members_lib.Member):
  """A follower that stores the numbers of the entries sent to it."""

  def __init__(self, number: int):
    super().__init__(group_engine.Host('abc'[number], number))
    self.sent: queue.SimpleQueue[int] = queue.SimpleQueue()

  def send(self, entry: bytes) -> None:
    self.sent.put(group_pb2.Entry.FromString(entry).sequence)


def _done(number: int) -> group_pb2.Answer:
  return group_pb2.Answer(done=number)


class OrderedLogTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.members = [_Member(1), _Member(2)]
    self.on_send = lambda: None
    self.log = ordered_log.OrderedLog(self._followers)

  def _followers(self) -> list[_Member]:
    self.on_send()
    return self.members

  def test_entries_arrive_in_the_order_of_their_numbers(self):
    """Checks a second thread that comes between numbering and sending."""
    lock = self.log._lock = ordered_log.FairLock()  # Shows waiting threads.
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    second = threading.Thread(
      target=lambda: numbers.put(self.log.append(group_pb2.Entry()))
    )

    def let_the_second_append():
      self.on_send = lambda: None
      second.start()
      deadline = time.monotonic() + _TIMEOUT
      while second.is_alive() and not lock._waiting:
        self.assertLess(time.monotonic(), deadline)
        time.sleep(0.001)

    self.on_send = let_the_second_append
    self.assertEqual(self.log.append(group_pb2.Entry()), 1)
    self.assertEqual(numbers.get(timeout=_TIMEOUT), 2)
    second.join(_TIMEOUT)
    for member in self.members:
      self.assertEqual(
        [member.sent.get(timeout=_TIMEOUT) for _ in '12'], [1, 2]
      )

  def test_answers_are_forgotten_one_entry_at_a_time(self):
    first, second = self.log.expect(), self.log.expect()
    self.log.append(group_pb2.Entry(), first)
    self.log.append(group_pb2.Entry(), second)
    self.log.forget(first)
    for number in (1, 2):
      self.log.answered(1, _done(number))
    self.assertEmpty(first.all())
    self.assertEqual(second.all(), {1: _done(2)})
    self.assertEqual(second.wait(0), [2])


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
