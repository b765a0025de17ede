"""Tests of what all calls begin and end with."""

import asyncio
import unittest
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.server.services import calls


class _Reader:
  """The other end of a stream, as far as a message needs one.

  Attributes:
    read: messages taken; as many as there is room for.
  """

  def __init__(self, room: int):
    self.read: list[str] = []
    self._room = room

  async def write(self, message: str) -> None:
    if len(self.read) == self._room:
      await asyncio.Event().wait()  # For ever.
    self.read.append(message)


class WriteTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def test_who_never_reads_is_given_up(self):
    reader = _Reader(room=2)
    with mock.patch.object(calls, 'STALL_SECS', 0.05):
      await calls.write(reader, 'one')
      await calls.write(reader, 'two')
      with self.assertRaisesRegex(
        errors.DeadlineExceeded, 'nothing of the stream was read for 0.05 s'
      ):
        await calls.write(reader, 'three')
    self.assertEqual(reader.read, ['one', 'two'])

  async def test_who_hangs_up_is_no_reader_that_is_given_up(self):
    writing = asyncio.create_task(calls.write(_Reader(room=0), 'one'))
    await asyncio.sleep(0)
    writing.cancel()
    with self.assertRaises(asyncio.CancelledError):
      await writing


if __name__ == '__main__':
  absltest.main()
