"""Tests that the admin server treats a group of hosts as one model server."""

from absl.testing import absltest
import grpc

from saxml_ext.admin.testing import cell_fixture
from saxml_ext.admin.testing import fake_modelet
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2

_HOSTS = ('tpu-0', 'tpu-1', 'tpu-2', 'tpu-3')
_WHY = 'host tpu-2 (process 2) said nothing for 1.5 s'


class GroupsTest(cell_fixture.CellTestCase):
  async def joined_group(
    self, hosts: tuple[str, ...] = _HOSTS
  ) -> fake_modelet.FakeModelet:
    modelet = await self.start_modelet()
    modelet.hosts = hosts
    await self.join(modelet)
    return modelet

  async def test_group_is_one_replica(self):
    modelet = await self.joined_group()
    await self.publish()
    await self.ready()
    [replica] = (await self.listed()).replicas
    self.assertEqual(replica.address, modelet.address)
    self.assertEqual(replica.status, common_pb2.ModelStatus.LOADED)
    self.assertEqual(tuple(replica.hosts), _HOSTS)
    stats = await self.stub.Stats(admin_pb2.StatsRequest())
    self.assertEqual(stats.model_server_type_stats[0].num_replicas, 1)

  async def test_single_host_is_no_group(self):
    await self.joined_group(('tpu-0',))
    await self.publish()
    await self.ready()
    [replica] = (await self.listed()).replicas
    self.assertEmpty(replica.hosts)

  async def test_failed_load_names_the_host(self):
    modelet = await self.joined_group()
    await self.publish(checkpoint=fake_modelet.BAD_CHECKPOINT)
    text = await self.fails(grpc.StatusCode.FAILED_PRECONDITION, self.ready())
    self.assertIn('host tpu-3: no such checkpoint', text)
    replica = (await self.listed()).replicas[0]
    self.assertEqual(replica.address, modelet.address)
    self.assertEqual(replica.status, common_pb2.ModelStatus.FAILED)
    self.assertIn('host tpu-3: no such checkpoint', replica.reason)
    self.assertEqual(tuple(replica.hosts), _HOSTS)

  async def test_leaving_group_is_removed_with_its_reason(self):
    modelet = await self.joined_group()
    await self.publish()
    await self.ready()
    self.assertEqual(await self.addresses(), {modelet.address})
    await self.join(modelet, leaving=_WHY)
    # The server still answers, like a process that is about to end.
    self.assertEqual(await self.addresses(), set())
    lost, missing = (await self.listed()).replicas
    self.assertEqual(lost.address, modelet.address)
    self.assertEqual(lost.status, common_pb2.ModelStatus.NONE)
    self.assertIn(_WHY, lost.reason)
    self.assertEqual(tuple(lost.hosts), _HOSTS)
    self.assertEqual(missing.address, '')
    stats = await self.stub.Stats(admin_pb2.StatsRequest())
    self.assertEmpty(stats.model_server_type_stats)

  async def test_lost_leader_is_named(self):
    modelet = await self.joined_group()
    await self.publish()
    await self.ready()
    await modelet.kill()
    server = self.admin.controller.members[modelet.address]
    await self.eventually(lambda: server.lost)
    self.assertEqual(await self.addresses(), set())
    lost, _ = (await self.listed()).replicas
    self.assertStartsWith(lost.reason, 'host tpu-0 (process 0) is lost')

  async def test_another_group_replaces_a_lost_one(self):
    modelet = await self.joined_group()
    await self.publish()
    await self.ready()
    other = await self.joined()
    await self.join(modelet, leaving=_WHY)
    await self.ready()
    [replica] = (await self.listed()).replicas
    self.assertEqual(replica.address, other.address)
    self.assertEmpty(replica.hosts)

  async def test_rejoining_group_serves_again(self):
    modelet = await self.joined_group()
    await self.publish()
    await self.ready()
    await self.join(modelet, leaving=_WHY)
    await self.join(modelet, leaving='a second reason')
    await modelet.kill()
    await modelet.start()
    await self.join(modelet)
    await self.eventually(lambda: modelet.models)
    await self.ready()
    [replica] = (await self.listed()).replicas
    self.assertEqual(replica.status, common_pb2.ModelStatus.LOADED)
    self.assertEqual(replica.reason, '')
    self.assertLen(modelet.calls, 2)  # The server had lost the model.

  async def test_follower_reports_a_hanging_leader(self):
    modelet = await self.joined_group()
    await self.publish()
    await self.ready()
    await self.stub.Join(
      admin_pb2.JoinRequest(address=modelet.address, leaving=_WHY)
    )
    self.assertEqual(await self.addresses(), set())
    lost, _ = (await self.listed()).replicas
    self.assertIn(_WHY, lost.reason)

  async def test_unknown_server_may_leave(self):
    modelet = await self.start_modelet()
    await self.join(modelet, leaving=_WHY)
    self.assertEmpty(self.admin.controller.members.all(lost_too=True))


if __name__ == '__main__':
  absltest.main()
