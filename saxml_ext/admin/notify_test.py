"""Tests of the wake-up call."""

import asyncio
import unittest

from absl.testing import absltest

from saxml_ext.admin import notify


class SignalTest(unittest.IsolatedAsyncioTestCase):
  async def test_wakes_all_who_wait_and_nobody_else(self):
    signal = notify.Signal()
    signal.notify_all()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    self.assertEqual(signal.num_waiters, 3)
    signal.notify_all()
    late = asyncio.create_task(signal.wait())
    await asyncio.gather(*waiting)
    self.assertFalse(late.done())
    self.assertEqual(signal.num_waiters, 1)
    signal.notify_all()
    await late

  async def test_cancelled_waiter_leaves(self):
    signal = notify.Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    self.assertEqual(signal.num_waiters, 0)


if __name__ == '__main__':
  absltest.main()
