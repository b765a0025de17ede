"""Tests of `Wakeups`."""

import asyncio
from concurrent import futures
import threading
import unittest

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.server.services import calls

_TIMEOUT = 300


class WakeupsTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    self.loop = asyncio.get_running_loop()
    self.calls = 0
    self.wakeups = calls.Wakeups(self)

  # The methods of an event loop that Wakeups needs.

  def create_future(self) -> asyncio.Future:
    return self.loop.create_future()

  def call_soon_threadsafe(self, function) -> None:
    self.calls += 1
    self.loop.call_soon_threadsafe(function)

  def wait(self, future: futures.Future) -> asyncio.Task:
    return asyncio.create_task(self.wakeups.wait(future))

  async def test_results_and_errors_are_delivered(self):
    answered, failed = futures.Future(), futures.Future()
    waiting = [self.wait(answered), self.wait(failed)]
    await asyncio.sleep(0)
    answered.set_result(5)
    failed.set_exception(errors.Internal('broken'))
    self.assertEqual(await waiting[0], 5)
    with self.assertRaisesRegex(errors.Internal, 'broken'):
      await waiting[1]

  async def test_finished_future_is_returned(self):
    future = futures.Future()
    future.set_result(5)
    self.assertEqual(await self.wakeups.wait(future), 5)

  async def test_simultaneous_answers_wake_the_loop_once(self):
    many = [futures.Future() for _ in range(100)]
    waiting = [self.wait(future) for future in many]
    await asyncio.sleep(0)
    for i, future in enumerate(many):
      future.set_result(i)
    self.assertEqual(await asyncio.gather(*waiting), list(range(100)))
    self.assertEqual(self.calls, 1)

  async def test_concurrent_calls_are_all_answered(self):
    many = [futures.Future() for _ in range(2000)]
    waiting = [self.wait(future) for future in many]
    await asyncio.sleep(0)

    def answer(part: list[futures.Future]) -> None:
      for future in part:
        future.set_result(None)

    threads = [
      threading.Thread(target=answer, args=(many[i::8],)) for i in range(8)
    ]
    for thread in threads:
      thread.start()
    async with asyncio.timeout(_TIMEOUT):
      await asyncio.gather(*waiting)

  async def test_cancelling_the_coroutine_cancels_the_future(self):
    future, other = futures.Future(), futures.Future()
    waiting, beside = self.wait(future), self.wait(other)
    await asyncio.sleep(0)
    waiting.cancel()
    with self.assertRaises(asyncio.CancelledError):
      await waiting
    self.assertTrue(future.cancelled())
    other.set_result(1)
    self.assertEqual(await beside, 1)

  async def test_request_is_followed_to_its_end(self):
    future = futures.Future()
    callbacks = []

    def begin(on_progress):
      callbacks.append(on_progress)
      return future

    updates = self.wakeups.follow(begin)
    first = asyncio.create_task(anext(updates))
    await asyncio.sleep(0)
    (on_progress,) = callbacks
    threading.Thread(target=on_progress, args=(1,)).start()
    self.assertEqual(await first, calls.Update(1, is_last=False))
    # While nothing is read, the newest progress replaces the older ones.
    for i in range(2, 100):
      on_progress(i)
    self.assertEqual(await anext(updates), calls.Update(99, is_last=False))
    on_progress(100)
    future.set_result('all')
    self.assertEqual(await anext(updates), calls.Update('all', is_last=True))
    with self.assertRaises(StopAsyncIteration):
      await anext(updates)

  async def test_failure_ends_a_followed_request(self):
    future = futures.Future()
    updates = self.wakeups.follow(lambda _: future)
    future.set_exception(errors.Internal('broken'))
    with self.assertRaisesRegex(errors.Internal, 'broken'):
      await anext(updates)

  async def test_closed_reader_cancels_the_request(self):
    closed, cancelled = futures.Future(), futures.Future()
    callbacks = []

    def begin(on_progress):
      callbacks.append(on_progress)
      return closed

    updates = self.wakeups.follow(begin)
    first = asyncio.create_task(anext(updates))
    await asyncio.sleep(0)
    callbacks[0](1)
    await first
    await updates.aclose()
    self.assertTrue(closed.cancelled())
    waiting = asyncio.create_task(
      anext(self.wakeups.follow(lambda _: cancelled))
    )
    await asyncio.sleep(0)
    waiting.cancel()
    with self.assertRaises(asyncio.CancelledError):
      await waiting
    self.assertTrue(cancelled.cancelled())


if __name__ == '__main__':
  absltest.main()
