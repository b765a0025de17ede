"""Tests of `Lane`."""

import collections
import itertools
import math
import random

from absl.testing import absltest

from saxml_ext.server.scheduling import admitted as work_lib
from saxml_ext.server.scheduling import waiting

_RUN = 4


class LaneTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.lane = waiting.Lane(priority=0, buckets=2, run_length=_RUN)
    self._order = itertools.count()

  def _add(self, client: str, bucket: int = 0, arrived: float = 0.0):
    work = work_lib.Work(None, math.inf, arrived, client=client)
    work.bucket, work.order = bucket, next(self._order)
    self.lane.add(work)
    return work

  def _take(self) -> work_lib.Work:
    work = self.lane.next()
    self._leave(work)
    return work

  def _leave(self, work: work_lib.Work) -> None:
    bucket, work.bucket = work.bucket, -1
    self.lane.left(work, bucket)

  def test_clients_take_turns(self):
    for client in 'aaaabbc':
      self._add(client)
    self.assertEqual(''.join(self._take().client for _ in range(7)), 'abcabaa')

  def test_one_client_is_served_in_order_of_arrival(self):
    works = [self._add('a') for _ in range(50)]
    self.assertEqual([self._take() for _ in range(50)], works)

  def test_a_flood_does_not_delay_the_first_request_of_another(self):
    for _ in range(1000):
      self._add('flood')
    for _ in range(100):
      self._take()
    other = self._add('other')
    self.assertIn(other, [self._take() for _ in range(2)])

  def test_new_client_gets_the_smallest_waiting_tag(self):
    for _ in range(4):
      self._add('flood')
    self._take()
    self._add('other')
    taken = ''.join(self._take().client[0] for _ in range(4))
    # The new request comes after the request whose turn it is, but before the
    # second one.
    self.assertEqual(taken, 'foff')

  def test_a_flood_in_another_bucket_delays_by_one_run(self):
    for _ in range(1000):
      self._add('flood')
    self._take()
    other = self._add('other', bucket=1)
    # The rest of the run and one request with the same turn may come before it.
    self.assertIn(other, [self._take() for _ in range(_RUN + 1)])

  def test_idle_client_accumulates_no_turns(self):
    for _ in range(100):
      self._add('busy')
      self._take()
    for _ in range(10):
      self._add('late')
      self._add('busy')
    taken = collections.Counter(self._take().client for _ in range(10))
    self.assertEqual(taken, {'late': 5, 'busy': 5})

  def test_client_that_cancels_keeps_its_turns(self):
    for _ in range(20):
      self._leave(self._add('fickle'))
    for _ in range(4):
      self._add('other')
    kept = self._add('fickle')
    self.assertIn(kept, [self._take() for _ in range(2)])

  def test_rank_rises_with_the_wait_of_the_oldest(self):
    first = self._add('a', arrived=100.0)
    second = self._add('b', arrived=109.0)
    self.assertEqual(self.lane.rank(109.9, 10.0), (0, first.order))
    self.assertEqual(self.lane.rank(121.0, 10.0), (-2, first.order))
    self._leave(first)
    self.assertEqual(self.lane.rank(121.0, 10.0), (-1, second.order))
    self.assertGreater(second.order, 0)

  def test_backlogged_clients_get_equal_shares_in_mixed_buckets(self):
    rng = random.Random(3)
    for client, count in (('many', 600), ('some', 200), ('few', 200)):
      for _ in range(count):
        self._add(client, bucket=rng.randrange(2))
    taken = collections.Counter(self._take().client for _ in range(300))
    for client in ('many', 'some', 'few'):
      self.assertBetween(taken[client], 100 - _RUN, 100 + _RUN)


if __name__ == '__main__':
  absltest.main()
