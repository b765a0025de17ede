"""Tests of model servers that join a cell, die, fail and come back."""

import asyncio
import logging
import socket
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.admin.modelet import connection
from saxml_ext.admin.testing import cell_fixture
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2

MODEL = cell_fixture.MODEL
_Code = grpc.StatusCode
# The reason for a server whose process ended without notice.
_DEATH = 'Connection refused|accepts no connections'


class ModelServersTest(cell_fixture.CellTestCase):
  async def test_dead_server_leaves_the_list_and_is_replaced(self):
    first = await self.joined()
    await self.publish()
    await self.ready()
    server_id = (await self.watch()).admin_server_id
    second = await self.joined()
    with self.assertLogs('absl', logging.WARNING) as logs:
      await first.kill()
      response = await self.watch(1, server_id)
    # It is gone because of its death, and not because of its silence.
    self.assertRegex(
      '\n'.join(logs.output), f'{first.address}: lost: .*({_DEATH})'
    )
    self.assertEqual(response.result.changelog[0].deletion, first.address)
    await self.ready()
    self.assertEqual((await self.listed()).modelet_addresses, [second.address])

  async def test_progress_of_a_load_is_the_reason_of_its_replica(self):
    modelet = await self.joined()
    modelet.gate.clear()
    await self.publish()
    for progress in (
      'compiled 4 of 11 programs, 20 s left',
      'compiled 5 of 11',
    ):
      modelet.reasons[MODEL] = progress
      listed = await self.listed()
      while listed.replicas[0].reason != progress:
        self.assertEqual(listed.replicas[0].status, common_pb2.LOADING)
        await asyncio.sleep(0.01)
        listed = await self.listed()
    del modelet.reasons[MODEL]
    modelet.gate.set()
    await self.ready()
    [replica] = (await self.listed()).replicas
    self.assertEqual((replica.status, replica.reason), (common_pb2.LOADED, ''))

  async def test_silent_addresses_of_one_caller_delay_no_other(self):
    contacts, gate = [], asyncio.Event()
    look = connection.Connection.open

    async def look_slowly(self, timeout):
      if self.address.startswith('localhost'):
        contacts.append(timeout)
        await gate.wait()
        raise errors.DeadlineExceeded('no answer')
      return await look(self, timeout)

    self.enterContext(
      mock.patch.object(connection.Connection, 'open', look_slowly)
    )
    silent = [socket.create_server(('localhost', 0)) for _ in range(20)]
    for task in silent:
      self.addCleanup(task.close)
    members = self.admin.controller.members
    joins = [
      asyncio.create_task(
        members.join(
          admin_pb2.JoinRequest(address=f'localhost:{s.getsockname()[1]}'),
          'attacker',
        )
      )
      for s in silent
    ]
    modelet = await self.joined()
    self.assertEqual([m.address for m in members.all()], [modelet.address])
    await self.eventually(lambda: len(contacts) == 8)
    # The same caller can still announce a server of another host.
    other = await self.start_modelet()
    request = admin_pb2.JoinRequest(
      address=other.address, model_server=other.spec
    )
    await members.join(request, 'attacker')
    gate.set()
    for result in await asyncio.gather(*joins, return_exceptions=True):
      self.assertIsInstance(result, errors.DeadlineExceeded)
    # Those that had to wait get less time.
    self.assertCountEqual(contacts, 8 * [10.0] + 12 * [2.0])

  async def test_failed_joins_free_the_slots_of_their_host(self):
    with socket.create_server(('127.0.0.1', 0)) as closed:
      dead = f'127.0.0.1:{closed.getsockname()[1]}'
    spec = admin_pb2.ModelServer()
    joins = [
      self.stub.Join(
        admin_pb2.JoinRequest(
          address=dead if i % 2 else f'192.0.2.{i}:1', model_server=spec
        ),
        timeout=120,
      )
      for i in range(200)
    ]
    await self.joined()
    for result in await asyncio.gather(*joins, return_exceptions=True):
      self.assertEqual(result.code(), _Code.DEADLINE_EXCEEDED)
      # The answer is the admin server's, not the timeout of this call.
      self.assertIn('Join after the server has started', result.details())

  async def test_address_needs_a_port(self):
    for address in ('host', 'host:', 'host:0', 'host:65536', 'unix:/tmp/s'):
      for fields in ({'address': address}, {'data_address': address}):
        request = admin_pb2.JoinRequest(
          **{'address': '127.0.0.1:1', **fields},
          model_server=admin_pb2.ModelServer(),
        )
        text = await self.fails(_Code.INVALID_ARGUMENT, self.stub.Join(request))
        self.assertIn('with a port from 1 to 65535', text)

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
    await modelet.start()  # The server does not join again.
    await self.ready()
    await self.eventually(lambda: len(modelet.calls) == 2)
    self.assertEqual(modelet.calls[1], f'Update {MODEL} ')

  async def test_missed_unload_is_repeated(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    await modelet.pause()
    await self.eventually(self.no_servers)
    await self.unpublish()
    await modelet.start()
    await self.eventually(lambda: not modelet.models)

  async def test_model_republished_meanwhile_is_reloaded(self):
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

  async def test_repeated_join_is_idempotent(self):
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

  async def test_bad_address_cannot_join(self):
    spec = admin_pb2.ModelServer()
    for address in ('unix:/tmp/x', 'localhost', 'a b:1', ':', 'x:' + '9' * 9):
      await self.fails(
        _Code.INVALID_ARGUMENT,
        self.stub.Join(
          admin_pb2.JoinRequest(address=address, model_server=spec)
        ),
      )

  def no_servers(self) -> bool:
    return not self.admin.controller.members.all()


class MemoryTest(cell_fixture.CellTestCase):
  async def test_models_that_fit_together_share_a_server(self):
    modelet = await self.start_modelet()
    modelet.memory_bytes = 100
    await self.join(modelet)
    for name, ram in (('m', '60'), ('n', '30'), ('o', '20')):
      await self.publish(f'/sax/test/{name}', overrides={'ram': ram})
    await self.publish('/sax/test/p')  # The model needs a whole server.
    await self.ready()
    await self.ready(model_id='/sax/test/n')
    self.assertEqual(set(modelet.models), {MODEL, '/sax/test/n'})
    await self.unpublish()
    await self.ready(model_id='/sax/test/o')
    self.assertEqual(set(modelet.models), {'/sax/test/n', '/sax/test/o'})

  async def test_memory_by_chip_needs_no_tags(self):
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
  async def test_failed_load_moves_to_another_server(self):
    bad, good = sorted(
      [await self.start_modelet(), await self.start_modelet()],
      key=lambda m: m.address,
    )
    bad.broken = True
    for modelet in (bad, good):
      await self.join(modelet)
    await self.publish(checkpoint='/c')
    await self.ready()  # The call survives the first failure.
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

  async def test_failed_load_is_repeated_on_the_only_server(self):
    modelet = await self.joined()
    modelet.broken = True
    await self.publish(checkpoint='/c')
    text = await self.fails(_Code.FAILED_PRECONDITION, self.ready())
    self.assertIn('no memory', text)
    await self.eventually(lambda: modelet.calls.count(f'Load {MODEL} /c') >= 2)
    modelet.broken = False
    # A call that waits between two attempts gets the failure.
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

  async def test_lost_server_of_a_missing_replica_is_listed(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    await modelet.kill()
    server = self.admin.controller.members[modelet.address]
    await self.eventually(lambda: server.lost)
    lost, missing = (await self.listed()).replicas
    self.assertEqual(lost.address, modelet.address)
    self.assertEqual(lost.status, common_pb2.ModelStatus.NONE)
    self.assertIn('is lost', lost.reason)
    self.assertEqual(missing.address, '')
    # Another server replaces it, and no replica is missing any more.
    other = await self.joined()
    await self.ready()
    [replica] = (await self.listed()).replicas
    self.assertEqual(replica.address, other.address)


if __name__ == '__main__':
  absltest.main()
