"""Tests of `Preparation`."""

import asyncio
import threading
import unittest

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.server.services import calls

_TIMEOUT = 300


class PreparationTest(unittest.IsolatedAsyncioTestCase):
  async def test_excess_texts_are_refused_until_one_is_done(self):
    preparation = calls.Preparation(limit=2)
    go = threading.Event()
    running = [
      asyncio.create_task(preparation.run(False, go.wait, _TIMEOUT))
      for _ in range(2)
    ]
    await asyncio.sleep(0)
    with self.assertRaisesRegex(errors.ResourceExhausted, 'limit .* is 2'):
      await preparation.run(False, len, '')
    # A fast function does not count against the limit.
    self.assertEqual(await preparation.run(True, len, 'abc'), 3)
    go.set()
    self.assertEqual(await asyncio.gather(*running), [True, True])
    self.assertEqual(await preparation.run(False, len, 'ab'), 2)

  async def test_failed_text_raises_and_makes_room(self):
    preparation = calls.Preparation(limit=1)
    for _ in range(2):
      with self.assertRaises(ValueError):
        await preparation.run(False, int, 'x')


if __name__ == '__main__':
  absltest.main()
