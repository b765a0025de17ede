"""Tests the asyncio client against a cell on loopback."""

import asyncio
import threading
import time
import unittest

from absl.testing import absltest

from saxml_ext.client import sax_aio
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors
from saxml_ext.protobuf import lm_pb2


def _timeout(seconds: float) -> sax_aio.ModelOptions:
  return sax_aio.ModelOptions(timeout=seconds)


def _message(text: str, prefix_len: int = 0) -> lm_pb2.GenerateStreamResponse:
  item = lm_pb2.GenerateStreamItem(
    text=text, prefix_len=prefix_len, scores=[-0.5]
  )
  return lm_pb2.GenerateStreamResponse(items=[item])


class _CellTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    sax_aio.SetRoot(self.cell.root)

  async def asyncSetUp(self):
    # The test case turns on the loop's debug mode, which makes it much slower.
    asyncio.get_running_loop().set_debug(False)


class AdminTest(_CellTest):
  async def test_publish_list_update_unpublish(self):
    await sax_aio.Publish('/sax/test/n', 'p.B', '/ckpt', 2, {'K': '1'})
    self.assertEqual(await sax_aio.List('/sax/test/n'), ('p.B', '/ckpt', 0))
    self.assertCountEqual(
      await sax_aio.ListAll('/sax/test'), ['/sax/test/m', '/sax/test/n']
    )
    await sax_aio.Update('/sax/test/n', 'p.B', '/new', 3)
    self.assertEqual(
      await sax_aio.ListDetail('/sax/test/n'),
      sax_aio.ModelDetail(
        'p.B', '/new', 3, 0, {'K': '1'}, model_id='/sax/test/n'
      ),
    )
    await sax_aio.Unpublish('/sax/test/n')
    with self.assertRaises(errors.NotFound):
      await sax_aio.List('/sax/test/n')

  async def test_stats_and_acls(self):
    self.assertEqual(await sax_aio.Stats('/sax/test'), [])
    await sax_aio.SetACL(fake_cell.MODEL, 'acl/b', 'lm.score')
    self.assertEqual(
      await sax_aio.GetACL(fake_cell.MODEL, 'all'), {'lm.score': 'acl/b'}
    )
    self.assertEqual(await sax_aio.GetACL('/sax/test'), 'acl/all')

  async def test_wait_for_ready_blocks_no_other_task(self):
    waiting = asyncio.create_task(sax_aio.WaitForReady(fake_cell.MODEL, 1))
    self.assertLen(await sax_aio.ListAll('/sax/test'), 1)
    self.assertFalse(waiting.done())
    self.cell.add_server()
    await asyncio.wait_for(waiting, 10)

  async def test_deadline_names_the_last_error(self):
    self.cell.admin.busy = 10**6
    with self.assertRaisesRegex(
      errors.DeadlineExceeded, 'within 1 s in .* UNAVAILABLE: busy'
    ):
      await sax_aio.ListAll('/sax/test', sax_aio.AdminOptions(timeout=1))

  async def test_new_admin_is_found(self):
    await sax_aio.ListAll('/sax/test')
    self.cell.admin.stop()
    self.cell.admin = fake_cell.FakeAdmin(self.cell.root)
    self.assertEqual(
      await sax_aio.ListAll('/sax/test', sax_aio.AdminOptions(10)), []
    )


class ModelTest(_CellTest):
  def setUp(self):
    super().setUp()
    self.server = self.cell.add_server()
    self.addCleanup(self.server.gate.set)
    self.lm = sax_aio.Model(fake_cell.MODEL).LM()

  async def until(self, condition) -> None:
    deadline = time.monotonic() + fake_cell.PATIENCE
    while not condition():
      self.assertLess(time.monotonic(), deadline)
      await asyncio.sleep(0.01)

  async def test_methods(self):
    self.server.texts['hi'] = [('one', -1.5), ('two', -0.25)]
    self.assertEqual(
      await self.lm.Generate('hi'), [('one', -1.5), ('two', -0.25)]
    )
    self.assertEqual(await self.lm.Score('p', ['s', 't']), [-1.0, -2.0])
    self.assertEqual(await self.lm.Embed('1 2.5'), [1.0, 2.5])
    self.assertEqual(
      await self.lm.Gradient('p', 's'), ([-3.5], {'x': [0.0, 0.125]})
    )

  async def test_passing_errors_are_retried_others_final(self):
    text = 'flaky:UNAVAILABLE:3'
    self.assertEqual(await self.lm.Generate(text), [(text, -1.0)])
    with self.assertRaisesRegex(errors.Internal, 'injected INTERNAL'):
      await self.lm.Generate('err:INTERNAL')
    self.assertLen(self.server.requests, 5)

  async def test_deadline_keeps_the_last_cause(self):
    await self.lm.Generate('a connection is made')
    with self.assertRaisesRegex(
      errors.DeadlineExceeded, 'last error: RESOURCE_EXHAUSTED: injected'
    ):
      await self.lm.Generate('err:RESOURCE_EXHAUSTED', _timeout(1))

  async def test_unknown_model_and_bad_id(self):
    with self.assertRaisesRegex(errors.NotFound, '/sax/test/nope not found'):
      await sax_aio.Model('/sax/test/nope').LM().Generate('hi')
    with self.assertRaisesRegex(errors.InvalidArgument, 'nonsense'):
      await sax_aio.Model('nonsense').LM().Generate('hi')

  async def test_request_waits_for_a_replica(self):
    self.cell.publish('/sax/test/n')
    lm = sax_aio.Model('/sax/test/n').LM()
    with self.assertRaisesRegex(errors.DeadlineExceeded, 'no replica of'):
      await lm.Generate('hi', _timeout(0.2))
    waiting = asyncio.create_task(
      lm.Generate('hi', _timeout(fake_cell.PATIENCE))
    )
    await asyncio.to_thread(self.cell.admin.wait_for_watch)
    self.cell.add_server('/sax/test/n')
    self.assertEqual(await waiting, [('hi', -1.0)])

  async def test_lost_replica_is_replaced(self):
    self.cell.add_server()
    await asyncio.gather(*(self.lm.Generate('hi') for _ in range(10)))
    self.server.stop()
    for _ in range(10):
      self.assertEqual(
        await self.lm.Generate('hi', _timeout(fake_cell.PATIENCE)),
        [('hi', -1.0)],
      )

  async def test_a_thousand_requests_at_once(self):
    await self.lm.Generate('the watcher runs')
    before = threading.active_count()
    # The server answers only after it has received all requests.
    self.server.gate.clear()
    tasks = [
      asyncio.create_task(self.lm.Generate(f'wait:{i}')) for i in range(1000)
    ]
    await self.until(lambda: len(self.server.requests) > 20)
    # The server's 32 threads also run in this process.
    self.assertLess(threading.active_count() - before, 32 + 10)
    self.assertFalse(any(task.done() for task in tasks))
    self.server.gate.set()
    got = await asyncio.wait_for(asyncio.gather(*tasks), 60)
    self.assertEqual(got, [[(f'wait:{i}', -1.0)] for i in range(1000)])

  async def test_cancelling_a_task_cancels_the_call(self):
    self.server.gate.clear()
    task = asyncio.create_task(self.lm.Generate('wait:'))
    await self.until(lambda: self.server.requests)
    task.cancel()
    with self.assertRaises(asyncio.CancelledError):
      await task
    await self.until(self.server.cancelled.is_set)

  async def test_cancelling_while_waiting_for_a_replica(self):
    self.cell.publish('/sax/test/n')
    task = asyncio.create_task(sax_aio.Model('/sax/test/n').LM().Generate('x'))
    await asyncio.to_thread(self.cell.admin.wait_for_watch)
    task.cancel()
    with self.assertRaises(asyncio.CancelledError):
      await task

  async def test_stream(self):
    text = 'flaky:UNAVAILABLE:2'
    self.server.streams[text] = [_message('Hel'), _message('lo', 3)]
    got = [items async for items in self.lm.GenerateStream(text)]
    self.assertEqual(got, [[('Hel', 0, [-0.5])], [('lo', 3, [-0.5])]])

  async def test_stream_error_after_the_first_message_is_final(self):
    self.server.streams['x'] = [_message('a'), errors.Unavailable('mid')]
    got = []
    with self.assertRaisesRegex(errors.Unavailable, 'mid'):
      async for items in self.lm.GenerateStream('x'):
        got.append(items)
    self.assertLen(got, 1)
    self.assertLen(self.server.requests, 1)

  async def test_closing_a_stream_cancels_the_call(self):
    self.server.gate.clear()

    def messages():
      yield _message('a')
      self.server.gate.wait(30)

    self.server.streams['endless:'] = messages()
    stream = self.lm.GenerateStream('endless:')
    self.assertEqual(await anext(stream), [('a', 0, [-0.5])])
    self.assertFalse(self.server.cancelled.is_set())
    await stream.aclose()
    await self.until(self.server.cancelled.is_set)


class LoopsTest(absltest.TestCase):
  def test_a_model_can_be_used_on_one_loop_after_another(self):
    cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(cell.stop)
    sax_aio.SetRoot(cell.root)
    cell.add_server()
    lm = sax_aio.Model(fake_cell.MODEL).LM()

    async def ask(text: str):
      return await lm.Generate(text)

    for text in 'abc':
      self.assertEqual(asyncio.run(ask(text)), [(text, -1.0)])


if __name__ == '__main__':
  absltest.main()
