"""Tests of the queue in which prompts wait for other prompts."""

from absl.testing import absltest
import numpy as np

from saxml_ext.engine import request as request_lib
from saxml_ext.engine.attention import slot_parts


def _requests(*slots: int) -> dict[int, request_lib.Request]:
  return {slot: request_lib.Request(np.array([slot])) for slot in slots}


def _slots(taken) -> list[tuple[int, list[int]]]:
  return [(bucket, list(requests)) for bucket, requests in taken]


def _queue(
  parts: int, size: int
) -> slot_parts.PromptQueue[request_lib.Request]:
  return slot_parts.PromptQueue(slot_parts.Batches(8, parts, (size,)))


class PromptQueueTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    # The parts are slots 0 to 3 and slots 4 to 7.
    self.queue = _queue(parts=2, size=1)

  def test_prompts_of_other_parts_share_a_batch(self):
    self.queue.add(512, _requests(0, 1), now=0)
    self.queue.add(1024, _requests(4), now=0)
    self.assertEqual(self.queue.take(0, hurry=False), [])
    self.assertEqual(self.queue.slots, {0, 1, 4})
    self.queue.add(512, _requests(5), now=1)
    taken = self.queue.take(1, hurry=False)
    self.assertEqual(_slots(taken), [(512, [0, 5])])
    self.assertEqual(self.queue.slots, {1, 4})

  def test_wait_is_limited(self):
    self.queue.add(512, _requests(0), now=10)
    self.queue.add(512, _requests(1), now=13)
    self.assertEqual(self.queue.take(13, hurry=False), [])
    self.assertEqual(
      _slots(self.queue.take(14, hurry=False)), [(512, [0]), (512, [1])]
    )
    self.assertEmpty(self.queue.slots)
    # The wait starts again in a bucket that was empty.
    self.queue.add(512, _requests(2), now=20)
    self.assertEqual(self.queue.take(20, hurry=False), [])

  def test_idle_engine_takes_prompts_at_once(self):
    self.queue.add(512, _requests(0), now=0)
    self.assertEqual(_slots(self.queue.take(0, hurry=True)), [(512, [0])])

  def test_discarded_prompt_is_not_taken(self):
    self.queue.add(512, _requests(0, 4), now=0)
    self.queue.discard(4)
    self.queue.discard(7)
    self.assertEqual(self.queue.take(0, hurry=False), [])
    self.assertLen(self.queue, 1)

  def test_single_part_takes_prompts_at_once(self):
    queue = _queue(parts=1, size=2)
    queue.add(512, _requests(0, 1, 7), now=0)
    self.assertEqual(
      _slots(queue.take(0, hurry=False)), [(512, [0, 1]), (512, [7])]
    )


if __name__ == '__main__':
  absltest.main()
