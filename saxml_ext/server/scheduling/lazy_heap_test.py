"""Tests of `LazyHeap`."""

import dataclasses
import random

from absl.testing import absltest

from saxml_ext.server.scheduling import waiting


@dataclasses.dataclass(eq=False)
class _Member:
  order: int
  bucket: int = 0


class LazyHeapTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.heap: waiting.LazyHeap[_Member] = waiting.LazyHeap()

  def _push(self, key: float, order: int = 0) -> _Member:
    member = _Member(order)
    self.heap.push(key, member)
    return member

  def _leave(self, member: _Member) -> None:
    member.bucket = -1
    self.heap.left()

  def test_first_is_the_smallest_waiting_item(self):
    last, first, second = self._push(3), self._push(1), self._push(2)
    self.assertIs(self.heap.first(), first)
    self._leave(first)
    self.assertIs(self.heap.first(), second)
    self.assertLen(self.heap, 2)
    self._leave(second)
    self.assertEqual(self.heap.waiting(), [last])
    self._leave(last)
    self.assertIsNone(self.heap.first())
    self.assertEmpty(self.heap)

  def test_order_breaks_ties(self):
    self._push(1, order=8)
    early = self._push(1, order=7)
    self.assertIs(self.heap.first(), early)

  def test_removed_items_do_not_accumulate(self):
    rng = random.Random(1)
    members = [self._push(rng.random(), i) for i in range(1000)]
    rng.shuffle(members)
    for member in members[:-10]:
      self._leave(member)
    self.assertLen(self.heap, 10)
    self.assertLess(self.heap.entries, 100)
    self.assertCountEqual(self.heap.waiting(), members[-10:])


if __name__ == '__main__':
  absltest.main()
