"""Tests of the waiting list."""

import bisect
import collections
import math
import random
import time

from absl.testing import absltest
import numpy as np

from saxml_ext.server.scheduling import admitted
from saxml_ext.server.scheduling import waiting
from saxml_ext.server.testing import fake_runner

_RUN = 3


def _work(
  length: int,
  arrived: float = 0.0,
  deadline: float = math.inf,
  client: str = '',
  priority: int = 0,
) -> admitted.Work:
  request = fake_runner.Request(np.zeros(length, np.int32))
  return admitted.Work(
    request, deadline, arrived, client=client, priority=priority
  )


def _by_hand(lengths: list[int]) -> list[int]:
  """Computes the expected order of one client's requests in runs."""
  waiting = [(bisect.bisect_left((10, 20, 30), n), n) for n in lengths]
  order = []
  run, left = -1, 0
  while waiting:
    if not left or all(bucket != run for bucket, _ in waiting):
      run, left = waiting[0][0], _RUN
    left -= 1
    position = next(i for i, (bucket, _) in enumerate(waiting) if bucket == run)
    order.append(waiting.pop(position)[1])
  return order


def _lengths(works: list[admitted.Work]) -> list[int]:
  return [len(w.request.tokens) for w in works]


class WaitingListTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.now = 0.0
    self.waiting = waiting.WaitingList(
      (10, 20, 30), 4.0, _RUN, clock=lambda: self.now
    )

  def _add(self, *lengths: int) -> None:
    for length in lengths:
      self.waiting.add(_work(length))

  def _take_one(self) -> int:
    return _lengths(self.waiting.take(1))[0]

  def test_all_requests_are_taken_if_slots_are_free(self):
    self._add(5, 25, 15)
    self.assertCountEqual(_lengths(self.waiting.take(9)), [5, 25, 15])
    self.assertEmpty(self.waiting)
    self.assertEmpty(self.waiting.take(9))

  def test_next_run_is_the_bucket_of_the_oldest(self):
    self._add(25, 1, 11, 28, 2)
    self.assertEqual(_lengths(self.waiting.take(2)), [25, 28])
    self.assertEqual(_lengths(self.waiting.take(2)), [1, 2])
    self.assertEqual(_lengths(self.waiting.take(2)), [11])

  def test_bounds_belong_to_the_shorter_bucket(self):
    self._add(10, 11, 9, 20)
    self.assertEqual(_lengths(self.waiting.take(4)), [10, 9, 11, 20])

  def test_overlong_prompt_belongs_to_the_last_bucket(self):
    self._add(31, 5, 300)
    self.assertEqual(_lengths(self.waiting.take(3)), [31, 300, 5])

  def test_run_continues_over_single_refills(self):
    self._add(25, 1, 26, 2, 27)
    self.assertEqual([self._take_one() for _ in range(5)], [25, 26, 27, 1, 2])

  def test_run_ends_for_the_oldest_request(self):
    self._add(1, 25, *range(2, 9))
    taken = [self._take_one() for _ in range(6)]
    self.assertEqual(taken, [1, 2, 3, 25, 4, 5])

  def test_oldest_request_waits_for_one_run_at_most(self):
    rng = random.Random(5)
    arrived, admitted = [], []
    passed: dict[admitted.Work, int] = {}
    for step in range(3000):
      if step < 2000 and rng.random() < 0.6:
        # Most prompts are short, so a wrong order would leave out the long
        # ones.
        work = _work(rng.choice([5] * 8 + [15, 25]))
        arrived.append(work)
        self.waiting.add(work)
      elif len(self.waiting):
        oldest = next(w for w in arrived if w.bucket >= 0)
        [work] = self.waiting.take(1)
        admitted.append(work)
        if work is not oldest:
          passed[oldest] = passed.get(oldest, 0) + 1
    self.assertCountEqual(map(id, admitted), map(id, arrived))
    self.assertLessEqual(max(passed.values()), _RUN)
    self.assertGreater(max(passed.values()), 1)

  def test_request_waits_to_share_a_prefill(self):
    self.waiting.add(_work(5, arrived=100.0))
    self.assertEqual(self.waiting.ready_at(free=2), 104.0)
    self.waiting.add(_work(15, arrived=103.0))
    self.assertEqual(self.waiting.ready_at(free=2), -math.inf)
    self.assertEqual(self.waiting.ready_at(free=3), 104.0)

  def test_oldest_request_of_any_priority_ends_the_wait(self):
    for arrived, priority in ((102.0, 0), (100.0, 5), (101.0, -5)):
      self.waiting.add(_work(5, arrived=arrived, priority=priority))
    self.assertEqual(self.waiting.ready_at(free=4), 104.0)

  def test_empty_list_or_full_slots_are_not_ready(self):
    self.assertEqual(self.waiting.ready_at(free=2), math.inf)
    self._add(5)
    self.assertEqual(self.waiting.ready_at(free=0), math.inf)

  def test_only_expired_requests_are_removed(self):
    late, later, alive = (_work(n, deadline=50.0 + n) for n in (1, 2, 3))
    for work in (later, alive, late, _work(4)):
      self.waiting.add(work)
    self.assertEqual(self.waiting.next_deadline(), 51.0)
    self.assertEqual(self.waiting.remove_expired(52.0), [late, later])
    self.assertLen(self.waiting, 2)
    self.assertEqual(self.waiting.next_deadline(), 53.0)
    self.assertLen(self.waiting.remove_all(), 2)
    self.assertEqual(self.waiting.next_deadline(), math.inf)

  def test_request_is_discarded_once(self):
    leaves, stays = _work(5, deadline=1.0), _work(5)
    for work in (leaves, stays):
      self.waiting.add(work)
    self.assertTrue(self.waiting.discard(leaves))
    self.assertFalse(self.waiting.discard(leaves))
    self.assertEqual(self.waiting.next_deadline(), math.inf)
    self.assertEqual(self.waiting.take(2), [stays])
    self.assertFalse(self.waiting.discard(stays))

  def test_deadlines_of_taken_requests_do_not_accumulate(self):
    self.waiting.add(_work(5, deadline=1.0))
    for _ in range(10_000):
      self.waiting.add(_work(5, deadline=1e9))
      self.waiting.take(1)
    self.assertLess(self.waiting._deadlines.entries, 200)

  def test_cost_per_request_is_independent_of_the_list_length(self):
    def seconds_per_request(count: int) -> float:
      rng = random.Random(count)
      works = [
        _work(rng.randrange(1, 40), deadline=rng.random()) for _ in range(count)
      ]
      begin = time.process_time()
      for work in works:
        self.waiting.add(work)
      for work in works[::4]:
        self.waiting.discard(work)
      while self.waiting:
        self.waiting.ready_at(1)
        self.waiting.next_deadline()
        self.waiting.take(1)
      return (time.process_time() - begin) / count

    few = min(seconds_per_request(500) for _ in range(5))
    many = min(seconds_per_request(16_000) for _ in range(3))
    # A list that is sorted or searched for each request would be 32 times
    # slower.
    self.assertLess(many, 6 * few)

  def test_single_client_is_served_in_runs(self):
    rng = random.Random(8)
    lengths = [rng.randrange(1, 40) for _ in range(500)]
    for length in lengths:
      self.waiting.add(_work(length, client='harness'))
    taken = []
    while self.waiting:
      taken += _lengths(self.waiting.take(rng.randrange(1, 5)))
    self.assertEqual(taken, _by_hand(lengths))

  def test_lower_priority_numbers_go_first(self):
    for length, priority in ((1, 5), (2, 0), (3, -5), (4, 5), (5, -5)):
      self.waiting.add(_work(length, priority=priority))
    self.assertEqual(_lengths(self.waiting.take(9)), [3, 5, 2, 1, 4])

  def test_urgent_request_ends_the_current_run(self):
    self._add(1, 2, 3)
    self._take_one()
    self.waiting.add(_work(25, priority=-1))
    self.assertEqual([self._take_one() for _ in range(3)], [25, 2, 3])

  def test_waiting_raises_the_priority(self):
    self.waiting.add(_work(7, arrived=0.0, priority=2))
    taken = []
    for second in range(0, 40, 2):
      self.now = float(second)
      self.waiting.add(_work(1, arrived=self.now))
      self.waiting.add(_work(2, arrived=self.now))
      taken += _lengths(self.waiting.take(2))
    # After two lifts, it has the priority of new requests and has waited
    # longest.
    self.assertIn(7, taken)
    self.assertEqual(taken.index(7), 2 * waiting.LIFT_SECS // 2 * 2)

  def test_priorities_are_bounded(self):
    self.waiting.add(_work(1, priority=10**9))
    self.waiting.add(_work(2, priority=waiting.MOST_PRIORITY))
    self.waiting.add(_work(3, priority=-(10**9)))
    self.assertEqual(_lengths(self.waiting.take(3)), [3, 1, 2])

  def test_full_queue_admits_clients_below_their_share(self):
    limit = 8
    for _ in range(limit):
      self.waiting.add(_work(1, client='flood'))
    self.assertFalse(self.waiting.may_exceed('flood', limit, limit))
    self.assertTrue(self.waiting.may_exceed('other', limit, limit))
    self.assertFalse(self.waiting.may_exceed('other', limit * 3 // 2, limit))

  def test_share_of_a_full_queue_is_admitted(self):
    limit = 8
    for count in range(limit // 2 + 1):
      self.assertEqual(
        self.waiting.may_exceed('other', limit, limit), 0 < count < limit // 2
      )
      self.waiting.add(_work(1, client='flood'))
      self.waiting.add(_work(1, client='other'))

  def test_share_is_at_least_one_request(self):
    for client in 'abc':
      self.waiting.add(_work(1, client=client))
    self.assertTrue(self.waiting.may_exceed('d', held=3, limit=3))
    self.assertFalse(self.waiting.may_exceed('a', held=3, limit=3))

  def test_single_client_is_bounded(self):
    self.assertFalse(self.waiting.may_exceed('only', 8, 8))
    self.waiting.add(_work(1, client='only'))
    self.assertFalse(self.waiting.may_exceed('only', 8, 8))

  def test_shares_of_a_full_queue_become_even(self):
    # Two clients send as many requests as they can, one of them far more often.
    # One request is served in each round.
    limit, rng = 16, random.Random(2)
    most = 0
    served: collections.Counter[str] = collections.Counter()
    refused: collections.Counter[str] = collections.Counter()
    for _ in range(2000):
      for client in rng.choices(('loud', 'quiet'), (9, 2), k=4):
        size = len(self.waiting)
        if size < limit or self.waiting.may_exceed(client, size, limit):
          self.waiting.add(_work(1, client=client))
        else:
          refused[client] += 1
      most = max(most, len(self.waiting))
      served.update(work.client for work in self.waiting.take(1))
    self.assertLessEqual(most, limit * 3 // 2)
    self.assertBetween(served['quiet'], 900, 1100)
    self.assertGreater(refused['loud'], 4 * refused['quiet'])


if __name__ == '__main__':
  absltest.main()
