"""Tests for waiting."""

import math

from absl.testing import absltest
import numpy as np

from saxml_ext.server import fake_runner
from saxml_ext.server import waiting


def _work(
    length: int, arrived: float = 0.0, deadline: float = math.inf
) -> waiting.Work:
  request = fake_runner.Request(np.zeros(length, np.int32))
  return waiting.Work(request, deadline, arrived)


def _lengths(works: list[waiting.Work]) -> list[int]:
  return [len(w.request.tokens) for w in works]


class WaitingListTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.waiting = waiting.WaitingList((10, 20, 30), patience=4.0)

  def _add(self, *lengths: int) -> None:
    for length in lengths:
      self.waiting.add(_work(length))

  def test_takes_all_when_there_is_room(self):
    self._add(5, 25, 15)
    self.assertEqual(_lengths(self.waiting.take(3)), [5, 25, 15])
    self.assertEmpty(self.waiting)

  def test_prefers_lengths_of_the_oldest_ones_bucket(self):
    self._add(25, 1, 11, 28, 2)
    self.assertEqual(_lengths(self.waiting.take(2)), [25, 28])
    self.assertEqual(_lengths(self.waiting.take(2)), [1, 2])
    self.assertEqual(_lengths(self.waiting.take(2)), [11])

  def test_next_bucket_comes_before_a_farther_one(self):
    self._add(25, 1, 11)
    self.assertEqual(_lengths(self.waiting.take(2)), [25, 11])

  def test_the_oldest_always_goes_first(self):
    self._add(25, *[1] * 8)
    self.assertIn(25, _lengths(self.waiting.take(1)))
    for _ in range(8):
      self._add(30)
      taken = self.waiting.take(1)
      self.assertEqual(_lengths(taken), [1])

  def test_waits_for_company(self):
    self.waiting.add(_work(5, arrived=100.0))
    self.assertEqual(self.waiting.ready_at(free=2), 104.0)
    self.waiting.add(_work(5, arrived=103.0))
    self.assertEqual(self.waiting.ready_at(free=2), -math.inf)
    self.assertEqual(self.waiting.ready_at(free=3), 104.0)

  def test_is_not_ready_without_work_or_room(self):
    self.assertEqual(self.waiting.ready_at(free=2), math.inf)
    self._add(5)
    self.assertEqual(self.waiting.ready_at(free=0), math.inf)

  def test_removes_cancelled_and_expired_requests_only(self):
    cancelled = _work(1)
    cancelled.future.cancel()
    expired = _work(2, deadline=50.0)
    alive = _work(3, deadline=50.1)
    for work in (cancelled, expired, alive):
      self.waiting.add(work)
    self.assertEqual(self.waiting.next_deadline(), 50.0)
    self.assertEqual(self.waiting.remove_dead(50.0), [cancelled, expired])
    self.assertEqual(self.waiting.remove_all(), [alive])
    self.assertEqual(self.waiting.next_deadline(), math.inf)


if __name__ == '__main__':
  absltest.main()
