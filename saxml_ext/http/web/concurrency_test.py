"""Tests streams and calls that run at the same time."""

import asyncio
from collections.abc import AsyncGenerator
import contextlib
import unittest

from absl.testing import absltest

from saxml_ext.http.web import concurrency


class MergingTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.open = 0
    self.most = 0

  async def stream(self, *items) -> AsyncGenerator:
    self.open += 1
    self.most = max(self.most, self.open)
    try:
      for item in items:
        await asyncio.sleep(0)
        if isinstance(item, Exception):
          raise item
        yield item
      if not items:
        await asyncio.Future()
    finally:
      self.open -= 1

  async def test_items_keep_the_order_of_their_stream(self):
    streams = [self.stream(*range(n)) for n in (3, 1, 5, 2)]
    got = [item async for item in concurrency.merge(streams, at_once=2)]
    for number, count in enumerate((3, 1, 5, 2)):
      own = [item for n, item in got if n == number]
      self.assertEqual(own, list(range(count)))
    self.assertEqual((self.open, self.most), (0, 2))

  async def test_error_ends_all_streams(self):
    streams = [self.stream(), self.stream(1, ValueError('oh')), self.stream()]
    got = []
    with self.assertRaisesRegex(ValueError, 'oh'):
      async for item in concurrency.merge(streams, at_once=9):
        got.append(item)
    self.assertEqual(got, [(1, 1)])
    self.assertEqual((self.open, self.most), (0, 3))

  async def test_closing_ends_all_streams(self):
    streams = [self.stream(*range(100)), self.stream(), self.stream(*range(9))]
    async with contextlib.aclosing(concurrency.merge(streams, 2)) as items:
      async for _ in items:
        break
    self.assertEqual(self.open, 0)

  async def test_gather_limits_calls_and_fails_at_the_first_error(self):
    async def call(value):
      self.open += 1
      self.most = max(self.most, self.open)
      await asyncio.sleep(0)
      self.open -= 1
      if isinstance(value, Exception):
        raise value
      return value

    got = await concurrency.gather(call, range(10), 3)
    self.assertEqual(got, list(range(10)))
    self.assertEqual(self.most, 3)
    with self.assertRaisesRegex(ValueError, 'oh'):
      await concurrency.gather(call, [ValueError('oh'), *range(10)], 3)


if __name__ == '__main__':
  absltest.main()
