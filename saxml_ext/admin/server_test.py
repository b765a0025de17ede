"""Tests of the whole admin server over loopback, with fake model servers."""

import asyncio
import time
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.admin import cell_fixture
from saxml_ext.admin import fake_modelet
from saxml_ext.admin import modelets
from saxml_ext.admin import server
from saxml_ext.admin import shared_dir
from saxml_ext.common import cell
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2

MODEL = cell_fixture.MODEL
_Code = grpc.StatusCode


def modelet_of(admin: server.AdminServer) -> modelets.Modelet:
  """The only model server of a cell, as the admin server sees it."""
  [modelet] = admin.controller.servers()
  return modelet


class LifeOfAModelTest(cell_fixture.CellTestCase):

  async def test_publish_loads_at_once_and_unpublish_unloads(self):
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
    await self.joined()
    await self.publish(method_names=['zz'])
    self.assertEqual((await self.listed()).model.method_names, [])
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

  async def test_replicas_up_and_down_without_reload(self):
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
    # The same once more: its files may be new ones.
    await self.update(checkpoint_path='/ckpt/2')
    await self.eventually(lambda: len(modelet.calls) == 3)

  async def test_update_of_the_overrides_is_loaded_anew(self):
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

  async def test_name_is_taken_until_it_is_unloaded(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    modelet.gate.clear()
    await self.unpublish()
    text = await self.fails(_Code.UNAVAILABLE, self.publish())
    self.assertIn('{test m} is being unpublished, please retry later', text)
    modelet.gate.set()
    known = modelet_of(self.admin)
    await self.eventually(lambda: not known.is_unloading(MODEL))
    await self.publish()
    await self.ready()

  async def test_failed_load_says_why_and_leaves_the_address_list(self):
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

  async def test_busy_server_is_asked_again(self):
    modelet = await self.joined()
    modelet.busy = 1
    await self.publish()
    await self.ready()
    self.assertLen(modelet.calls, 2)

  async def addresses(self) -> set[str]:
    """What a client that starts now would take the addresses to be."""
    known: set[str] = set()
    response = await self.watch()
    known.update(response.result.values)
    for change in response.result.changelog:
      known.add(change.addition)
      known.discard(change.deletion)
    return known - {''}


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

  async def test_client_that_goes_away_leaves_nothing_behind(self):
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

  async def test_deadline_leaves_nothing_behind(self):
    await self.publish()
    await self.fails(_Code.DEADLINE_EXCEEDED, self.watch(timeout=0.5))
    await self.fails(_Code.DEADLINE_EXCEEDED, self.ready(timeout=0.5))
    changed = self.admin.controller.get(MODEL).changed
    await self.eventually(lambda: changed.num_waiters == 0)

  async def test_many_watchers_hear_of_a_change(self):
    await self.publish()
    watching = [asyncio.create_task(self.watch()) for _ in range(200)]
    await asyncio.sleep(0.2)
    await self.joined()
    responses = await asyncio.gather(*watching)
    self.assertEqual({r.result.next_seqno for r in responses}, {1})


class ModelServersTest(cell_fixture.CellTestCase):

  async def test_dead_server_leaves_the_list_and_is_replaced(self):
    first = await self.joined()
    await self.publish()
    await self.ready()
    server_id = (await self.watch()).admin_server_id
    second = await self.joined()
    killed = time.monotonic()
    await first.kill()
    response = await self.watch(1, server_id)
    # 1.1 s at most by design; the rest is for a machine that is busy.
    self.assertLess(time.monotonic() - killed, 5)
    self.assertEqual(response.result.changelog[0].deletion, first.address)
    await self.ready()
    self.assertEqual((await self.listed()).modelet_addresses, [second.address])

  async def test_quick_restart_on_the_same_address_reloads(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    await modelet.kill()
    await modelet.start()
    await self.join(modelet)
    await self.eventually(lambda: modelet.models)
    await self.ready()

  async def test_server_back_after_a_pause_keeps_its_model(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    await modelet.pause()
    await self.eventually(self.no_servers)
    await modelet.start()  # It does not join again.
    await self.ready()
    await self.eventually(lambda: len(modelet.calls) == 2)
    self.assertEqual(modelet.calls[1], f'Update {MODEL} ')

  async def test_unload_missed_while_away_is_made_up_for(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    await modelet.pause()
    await self.eventually(self.no_servers)
    await self.unpublish()
    await modelet.start()
    await self.eventually(lambda: not modelet.models)

  async def test_what_was_published_anew_meanwhile_is_loaded_anew(self):
    modelet = await self.joined()
    await self.publish(checkpoint='/old')
    await self.ready()
    await modelet.pause()
    await self.eventually(self.no_servers)
    await self.unpublish()
    await self.publish(checkpoint='/new')
    await modelet.start()
    await self.ready()
    self.assertEqual(
        modelet.calls,
        [f'Load {MODEL} /old', f'Unload {MODEL}', f'Load {MODEL} /new'],
    )

  async def test_join_again_is_idempotent(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    for _ in range(5):
      await self.join(modelet)
    await asyncio.sleep(0.3)
    self.assertLen(modelet.calls, 1)

  async def test_join_with_other_paths_replaces(self):
    modelet = await self.joined('p.A')
    modelet.paths = ('p.B',)
    await self.join(modelet)
    stats = await self.stub.Stats(admin_pb2.StatsRequest())
    self.assertEqual(stats.num_servers_by_servable_model_path, {'p.B': 1})
    self.assertLen(stats.model_server_type_stats, 1)

  async def test_statically_loaded_models_are_left_alone(self):
    modelet = await self.start_modelet()
    modelet.models['/sax/test/own'] = common_pb2.ModelStatus.LOADED
    await self.join(modelet)
    await asyncio.sleep(0.7)
    self.assertEqual(modelet.calls, [])

  async def test_join_of_a_bad_address(self):
    spec = admin_pb2.ModelServer()
    for address in ('unix:/tmp/x', 'localhost', 'a b:1', ':', 'x:' + '9' * 9):
      await self.fails(
          _Code.INVALID_ARGUMENT,
          self.stub.Join(
              admin_pb2.JoinRequest(address=address, model_server=spec)
          ),
      )

  def no_servers(self) -> bool:
    return not self.admin.controller.servers()


class MemoryTest(cell_fixture.CellTestCase):

  async def test_models_that_fit_together_share_a_server(self):
    modelet = await self.start_modelet()
    modelet.memory_bytes = 100
    await self.join(modelet)
    for name, ram in (('m', '60'), ('n', '30'), ('o', '20')):
      await self.publish(f'/sax/test/{name}', overrides={'ram': ram})
    await self.publish('/sax/test/p')  # Says nothing: needs a whole server.
    await self.ready()
    await self.ready(model_id='/sax/test/n')
    self.assertEqual(set(modelet.models), {MODEL, '/sax/test/n'})
    await self.unpublish()
    await self.ready(model_id='/sax/test/o')
    self.assertEqual(set(modelet.models), {'/sax/test/n', '/sax/test/o'})

  async def test_by_chip_servers_need_not_tell(self):
    await self.stop_admin()
    await self.start_admin(by_chip=True)
    modelet = await self.joined()
    ten_gib = str(10 * 2**30)
    for name in ('m', 'n'):
      await self.publish(f'/sax/test/{name}', overrides={'ram': ten_gib})
    await self.publish(
        '/sax/test/o', overrides={'ram': '1', 'constraints': 'x'}
    )
    await self.ready()
    await self.ready(model_id='/sax/test/n')
    self.assertEqual(set(modelet.models), {MODEL, '/sax/test/n'})


class FailedLoadTest(cell_fixture.CellTestCase):

  async def test_is_tried_on_another_server(self):
    bad, good = sorted(
        [await self.start_modelet(), await self.start_modelet()],
        key=lambda m: m.address,
    )
    bad.broken = True
    for modelet in (bad, good):
      await self.join(modelet)
    await self.publish(checkpoint='/c')
    await self.ready()  # Does not give up at the first failure.
    listed = await self.listed()
    self.assertEqual(listed.modelet_addresses, [good.address])
    self.assertEqual(
        [(r.address, r.status) for r in listed.replicas],
        [
            (good.address, common_pb2.ModelStatus.LOADED),
            (bad.address, common_pb2.ModelStatus.FAILED),
        ],
    )
    self.assertIn('no memory', listed.replicas[1].reason)
    await self.eventually(lambda: not bad.models)

  async def test_is_tried_again_on_the_only_server(self):
    modelet = await self.joined()
    modelet.broken = True
    await self.publish(checkpoint='/c')
    text = await self.fails(_Code.FAILED_PRECONDITION, self.ready())
    self.assertIn('no memory', text)
    await self.eventually(lambda: modelet.calls.count(f'Load {MODEL} /c') >= 2)
    modelet.broken = False
    # A waiter between two attempts is told of the failure.
    await self.eventually(
        lambda: modelet.models.get(MODEL) == common_pb2.ModelStatus.LOADED
    )
    await self.eventually(
        lambda: not self.admin.controller.get(MODEL).failures.items()
    )
    await self.ready()

  async def test_missing_replicas_are_explained(self):
    await self.publish(replicas=2)
    [replica] = (await self.listed()).replicas
    self.assertEqual(replica.address, '')
    self.assertIn('0 of 2 replicas', replica.reason)


class RestartTest(cell_fixture.CellTestCase):

  async def test_models_and_what_serves_them_survive(self):
    modelet = await self.joined()
    await self.publish(overrides={'A': '1'})
    await self.ready()
    await self.publish(model_id='/sax/test/n', replicas=2)
    old_id = (await self.watch()).admin_server_id
    await self.stop_admin()
    await self.start_admin()

    location = cell.read_location(self.root, cell_fixture.CELL)
    self.assertEqual(location.location, self.admin.address)
    response = await self.stub.List(admin_pb2.ListRequest())
    self.assertEqual(
        [p.model.model_id for p in response.published_models],
        [MODEL, '/sax/test/n'],
    )
    self.assertEqual(response.published_models[0].model.overrides, {'A': '1'})
    await self.join(modelet)
    await self.ready()
    response = await self.watch(seqno=5, server_id=old_id)
    self.assertEqual(response.result.changelog[0].addition, modelet.address)
    # It is loaded already; but an update may have been stored and not sent.
    await self.eventually(lambda: len(modelet.calls) == 2)
    self.assertEqual(modelet.calls[1], f'Update {MODEL} None')

  async def test_new_leader_first_looks_who_holds_what(self):
    holder = await self.joined()
    await self.publish()
    await self.ready()
    await self.stop_admin()
    await self.start_admin()
    idle = await self.joined()
    await asyncio.sleep(0.5)
    await self.join(holder)
    await self.ready()
    await asyncio.sleep(3.5)
    self.assertEqual(idle.calls, [])
    await holder.kill()
    await self.eventually(lambda: idle.models)

  async def test_new_leader_loads_what_nobody_holds(self):
    await self.publish()
    await self.stop_admin()
    await self.start_admin()
    modelet = await self.joined()
    await self.ready()
    self.assertLen(modelet.calls, 1)

  async def test_unwritable_state_fails_the_call_only(self):
    await self.publish()
    full = OSError(28, 'No space left on device')
    with mock.patch.object(shared_dir.LocalDir, 'write', side_effect=full):
      text = await self.fails(_Code.FAILED_PRECONDITION, self.unpublish())
    self.assertIn('No space left on device', text)
    self.assertEqual(self.saved(), ['m'])
    await self.listed()
    await self.unpublish()
    self.assertEqual(self.saved(), [])

  async def test_port_in_use_is_an_error(self):
    port = int(self.admin.address.rpartition(':')[2])
    location = cell.read_location(self.root, cell_fixture.CELL)
    other = server.AdminServer(self.root, cell_fixture.CELL, port)
    with self.assertRaisesRegex(Exception, f'port {port} cannot be listened'):
      await other.start()
    await other.stop()
    self.assertEqual(cell.read_location(self.root, cell_fixture.CELL), location)


if __name__ == '__main__':
  absltest.main()
