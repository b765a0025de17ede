"""Tests of making items in advance."""

import threading

from absl.testing import absltest

from converters.convert import prefetch


class PrefetchTest(absltest.TestCase):
  def test_order_and_end(self):
    self.assertEqual(list(prefetch.prefetch(range(100), 3)), [*range(100)])
    self.assertEqual(list(prefetch.prefetch([], 3)), [])
    squares = prefetch.in_order(lambda n: n * n, range(50), 4)
    self.assertEqual(list(squares), [n * n for n in range(50)])
    self.assertEqual(list(prefetch.in_order(len, [], 4)), [])

  def test_no_more_than_depth_in_advance(self):
    made = []

    def numbers():
      for n in range(10):
        made.append(n)
        yield n

    stream = prefetch.prefetch(numbers(), 2)
    for n in stream:
      self.assertLessEqual(len(made), n + 3)

  def test_two_at_once(self):
    barrier = threading.Barrier(2, timeout=30)
    waited = prefetch.in_order(lambda n: barrier.wait() >= 0, range(4), 2)
    self.assertEqual(list(waited), [True] * 4)

  def test_errors_come_in_their_turn(self):
    def numbers():
      yield 1
      raise ValueError('no second')

    stream = prefetch.prefetch(numbers(), 5)
    self.assertEqual(next(stream), 1)
    with self.assertRaisesRegex(ValueError, 'no second'):
      next(stream)

  def test_abandoned_stream_ends_its_thread(self):
    stream = prefetch.prefetch(iter(int, 1), 2)
    next(stream)
    before = threading.active_count()
    stream.close()
    self.assertEqual(threading.active_count(), before - 1)


if __name__ == '__main__':
  absltest.main()
