"""Tests of the whole admin server over loopback: models and watch calls."""

import asyncio

from absl.testing import absltest
import grpc

from saxml_ext.admin.testing import cell_fixture
from saxml_ext.admin.testing import fake_modelet
from saxml_ext.protobuf import admin_pb2

MODEL = cell_fixture.MODEL
_Code = grpc.StatusCode


class LifeOfAModelTest(cell_fixture.CellTestCase):
  async def test_publish_loads_and_unpublish_unloads(self):
    modelet = await self.joined()
    await self.publish(checkpoint='/ckpt/1')
    self.assertEqual(self.saved(), ['m'])
    await self.ready()
    self.assertEqual(modelet.calls, [f'Load {MODEL} /ckpt/1'])
    listed = await self.listed()
    self.assertEqual(listed.modelet_addresses, [modelet.address])
    self.assertEqual(listed.model.uuid, b'')

    await self.unpublish()
    self.assertEqual(self.saved(), [])
    await self.eventually(lambda: not modelet.models)
    await self.fails(_Code.NOT_FOUND, self.listed())

  async def test_methods_are_those_of_the_last_status(self):
    modelet = await self.joined()
    modelet.gate.clear()
    await self.publish(method_names=['zz'])
    self.assertEqual((await self.listed()).model.method_names, [])
    modelet.gate.set()
    await self.ready()
    self.assertEqual(
      (await self.listed()).model.method_names, ['lm.generate', 'lm.score']
    )

  async def test_server_that_joins_later_gets_the_model(self):
    await self.publish()
    waiting = asyncio.create_task(self.ready())
    await self.joined()
    await waiting

  async def test_one_model_per_server(self):
    first, second = await self.joined(), await self.joined()
    await self.publish()
    await self.publish(model_id='/sax/test/n')
    await self.ready()
    await self.ready(model_id='/sax/test/n')
    self.assertEqual([len(first.models), len(second.models)], [1, 1])

  async def test_number_of_replicas_changes_without_reload(self):
    servers = [await self.joined() for _ in range(3)]
    await self.publish()
    await self.ready()
    await self.update(requested_num_replicas=3)
    await self.ready(3)
    await self.update(requested_num_replicas=0)
    await self.eventually(lambda: not any(s.models for s in servers))
    calls = sum((s.calls for s in servers), [])
    self.assertFalse([c for c in calls if c.startswith('Update')])
    self.assertEqual(len([c for c in calls if c.startswith('Load')]), 3)

  async def test_update_of_the_checkpoint_is_passed_on(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    await self.update(checkpoint_path='/ckpt/2')
    await self.eventually(
      lambda: modelet.calls[-1] == f'Update {MODEL} /ckpt/2'
    )
    # An update without a change is sent too, because its files may be new.
    await self.update(checkpoint_path='/ckpt/2')
    await self.eventually(lambda: len(modelet.calls) == 3)

  async def test_changed_overrides_reload_the_model(self):
    modelet = await self.joined()
    await self.publish(overrides={'A': '1'})
    await self.ready()
    await self.stub.Update(
      admin_pb2.UpdateRequest(
        model=admin_pb2.Model(
          model_id=MODEL,
          model_path='p.A',
          checkpoint_path='None',
          requested_num_replicas=1,
          overrides={'A': '2'},
        )
      )
    )
    await self.ready()
    self.assertEqual(
      [c.split()[0] for c in modelet.calls], ['Load', 'Unload', 'Load']
    )

  async def test_failed_load_has_a_reason_and_no_address(self):
    modelet = await self.joined()
    await self.publish(checkpoint=fake_modelet.BAD_CHECKPOINT)
    text = await self.fails(_Code.FAILED_PRECONDITION, self.ready())
    self.assertIn('no such checkpoint', text)
    self.assertIn(modelet.address, text)
    listed = await self.listed()
    self.assertEqual(listed.modelet_addresses, [modelet.address])
    self.assertEqual(await self.addresses(), set())

    await self.update(checkpoint_path='/good')
    await self.ready()
    self.assertEqual(
      modelet.calls[-2:], [f'Unload {MODEL}', f'Load {MODEL} /good']
    )
    self.assertEqual(await self.addresses(), {modelet.address})

  async def test_busy_server_gets_the_command_again(self):
    modelet = await self.joined()
    modelet.busy = 1
    await self.publish()
    await self.ready()
    self.assertLen(modelet.calls, 2)


class WatchTest(cell_fixture.CellTestCase):
  async def test_blocks_until_the_load_is_queued(self):
    modelet = await self.start_modelet()
    modelet.gate.clear()
    await self.publish()
    await self.fails(_Code.DEADLINE_EXCEEDED, self.watch(timeout=0.3))
    watching = asyncio.create_task(self.watch())
    await asyncio.sleep(0.1)
    self.assertFalse(watching.done())
    await self.join(modelet, data_address='127.0.0.1:7')
    response = await watching
    self.assertEqual(response.result.next_seqno, 1)
    self.assertEqual(response.result.changelog[0].addition, '127.0.0.1:7')
    self.assertRegex(
      response.admin_server_id, f'^{self.admin.address}_[0-9a-f]{{16}}$'
    )
    modelet.gate.set()

  async def test_number_of_another_process_counts_as_zero(self):
    await self.joined()
    await self.publish()
    response = await self.watch(seqno=17, server_id='somebody')
    self.assertLen(response.result.changelog, 1)
    ahead = await self.watch(seqno=17, server_id=response.admin_server_id)
    self.assertEqual(ahead.result, admin_pb2.WatchResult(next_seqno=1))

  async def test_unpublish_ends_watchers_and_waiters(self):
    await self.publish()
    watching = asyncio.create_task(self.watch())
    waiting = asyncio.create_task(self.ready())
    await asyncio.sleep(0.2)
    await self.unpublish()
    response = await watching
    self.assertEqual(response.result, admin_pb2.WatchResult(has_fullset=True))
    self.assertEqual(await self.fails(_Code.CANCELLED, waiting), 'Canceled')
    self.assertStartsWith(
      await self.fails(_Code.NOT_FOUND, self.watch()),
      'model /sax/test/m not found',
    )

  async def test_disconnected_client_leaves_no_watcher(self):
    await self.publish()
    changed = self.admin.controller.get(MODEL).changed
    calls = [
      self.stub.WatchLoc(admin_pb2.WatchLocRequest(model_id=MODEL))
      for _ in range(50)
    ]
    await self.eventually(lambda: changed.num_waiters == 50)
    for call in calls:
      call.cancel()
    await self.eventually(lambda: changed.num_waiters == 0)

  async def test_expired_call_leaves_no_watcher(self):
    await self.publish()
    await self.fails(_Code.DEADLINE_EXCEEDED, self.watch(timeout=0.5))
    await self.fails(_Code.DEADLINE_EXCEEDED, self.ready(timeout=0.5))
    changed = self.admin.controller.get(MODEL).changed
    await self.eventually(lambda: changed.num_waiters == 0)

  async def test_change_reaches_many_watchers(self):
    await self.publish()
    watching = [asyncio.create_task(self.watch()) for _ in range(200)]
    await asyncio.sleep(0.2)
    await self.joined()
    responses = await asyncio.gather(*watching)
    self.assertEqual({r.result.next_seqno for r in responses}, {1})


if __name__ == '__main__':
  absltest.main()
