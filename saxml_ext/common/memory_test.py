"""Tests of freed memory."""

import gc
import weakref

from absl.testing import absltest

from saxml_ext.common import memory

_BLOCKS = 2000
_BLOCK = 60_000  # malloc maps larger blocks one by one.


def _resident() -> int:
  with open('/proc/self/status', encoding='ascii') as file:
    [line] = [line for line in file if line.startswith('VmRSS:')]
  return int(line.split()[1]) * 1024


class _Node:
  def __init__(self):
    self.myself = self


class MemoryTest(absltest.TestCase):
  def test_freed_blocks_are_returned(self):
    blocks = [b'x' * _BLOCK for _ in range(_BLOCKS)]
    # The last block keeps the heap from shrinking by itself.
    last = blocks.pop()
    full = _resident()
    del blocks
    memory.give_back()
    self.assertLess(_resident(), full - 0.8 * _BLOCKS * _BLOCK)
    self.assertLen(last, _BLOCK)

  def test_cycles_are_collected(self):
    gc.disable()
    self.addCleanup(gc.enable)
    node = weakref.ref(_Node())
    self.assertIsNotNone(node())
    memory.collect()
    self.assertIsNone(node())

  def test_frozen_objects_are_not_collected_again(self):
    self.addCleanup(gc.unfreeze)
    kept = [_Node() for _ in range(1000)]
    memory.settle()
    self.assertGreaterEqual(gc.get_freeze_count(), len(kept))
    self.assertLess(len(gc.get_objects()), len(kept))


if __name__ == '__main__':
  absltest.main()
