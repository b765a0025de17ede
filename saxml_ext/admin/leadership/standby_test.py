"""Tests of a standby admin server and its takeover."""

import asyncio
import threading
from unittest import mock
import urllib.request

from absl.testing import absltest
import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc

from saxml_ext.admin import cell_admin as server_lib
from saxml_ext.admin.leadership import shared_dir
from saxml_ext.admin.modelet import connection
from saxml_ext.admin.testing import cell_fixture
from saxml_ext.common import cell
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_Code = grpc.StatusCode
_Health = health_pb2.HealthCheckResponse
# The opener connects to loopback directly, even if $http_proxy is set.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class StandbyTest(cell_fixture.CellTestCase):
  async def asyncSetUp(self):
    await super().asyncSetUp()
    self.standby = server_lib.AdminServer(
      self.root, cell_fixture.CELL, 0, http_port=0
    )
    await self.standby.start()
    self.second = grpc.aio.insecure_channel(self.standby.address)

  async def asyncTearDown(self):
    # The standby stops before the leader. Otherwise, it would take over while
    # its files are deleted.
    await self.second.close()
    await self.standby.stop()
    await super().asyncTearDown()

  def location(self) -> str:
    return cell.read_location(self.root, cell_fixture.CELL).location

  async def standby_knows_the_leader(self) -> None:
    """Waits until the standby knows the leader."""
    stub = admin_pb2_grpc.AdminStub(self.second)
    while True:
      with self.assertRaises(grpc.aio.AioRpcError) as raised:
        await stub.List(admin_pb2.ListRequest(), timeout=120)
      if self.admin.address in raised.exception.details():
        return
      await asyncio.sleep(0.01)

  async def health(self, channel: grpc.aio.Channel) -> int:
    response = await health_pb2_grpc.HealthStub(channel).Check(
      health_pb2.HealthCheckRequest(service='sax.Admin')
    )
    return response.status

  async def page(self, admin: server_lib.AdminServer, path: str) -> str:
    def fetch() -> str:
      url = f'http://127.0.0.1:{admin.http_port}{path}'
      with _OPENER.open(url, timeout=120) as response:
        return response.read().decode()

    return await asyncio.to_thread(fetch)

  async def test_standby_redirects_clients_to_the_leader(self):
    stub = admin_pb2_grpc.AdminStub(self.second)
    await self.standby_knows_the_leader()
    for call in (
      stub.List(admin_pb2.ListRequest()),
      stub.Unpublish(admin_pb2.UnpublishRequest(model_id=cell_fixture.MODEL)),
    ):
      text = await self.fails(_Code.UNAVAILABLE, call)
      self.assertIn(f'The leader is {self.admin.address}', text)
    self.assertEqual(self.location(), self.admin.address)
    self.assertEqual(await self.health(self.channel), _Health.SERVING)
    self.assertEqual(await self.health(self.second), _Health.NOT_SERVING)

  async def test_leader_in_doubt_answers_once_confirmed(self):
    """Checks that a leader without CPU time refuses no call."""
    beat = threading.Event()
    self.addCleanup(beat.set)
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    renew = shared_dir.LocalDir.renew

    def renew_late(directory, epoch, text):
      loop.call_soon_threadsafe(called.set)
      beat.wait()
      renew(directory, epoch, text)

    with mock.patch.object(shared_dir.LocalDir, 'renew', renew_late):
      await called.wait()
      self.admin._election._valid_until = 0.0
      calls = [
        asyncio.create_task(call)
        for call in (self.publish(), self.listed('/sax/test/none'))
      ]
      await asyncio.sleep(0.2)
      self.assertFalse(any(call.done() for call in calls))
      beat.set()
      await calls[0]
      await self.fails(_Code.NOT_FOUND, calls[1])

  async def test_leader_in_doubt_refuses_after_a_timeout(self):
    self.enterContext(mock.patch.object(server_lib, '_DOUBT_TURNS', 3))
    self.enterContext(
      mock.patch.object(self.admin._election, 'may_answer', lambda: False)
    )
    text = await self.fails(_Code.UNAVAILABLE, self.publish())
    self.assertIn('No leader is known right now', text)

  async def test_pages_name_the_leader(self):
    await self.publish(replicas=3)
    await self.standby_knows_the_leader()
    page = await self.page(self.standby, '/')
    self.assertIn(f'on standby. The leader is {self.admin.address}', page)
    metrics = await self.page(self.admin, '/metrics')
    self.assertIn('\nsax_admin_leads 1.0\n', metrics)
    self.assertIn('\nsax_admin_published_models 1.0\n', metrics)
    self.assertIn('\nsax_admin_requested_replicas 3.0\n', metrics)
    self.assertIn('\nsax_admin_replicas{status="LOADED"} 0.0\n', metrics)
    metrics = await self.page(self.standby, '/metrics')
    self.assertIn('\nsax_admin_leads 0.0\n', metrics)

  async def test_standby_takes_over_published_models(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    watch = health_pb2_grpc.HealthStub(self.second).Watch(
      health_pb2.HealthCheckRequest()
    )
    self.assertEqual((await watch.read()).status, _Health.NOT_SERVING)
    await self.admin.stop()
    async with asyncio.timeout(60):
      await self.standby.leading()
      self.assertEqual((await watch.read()).status, _Health.SERVING)
    self.assertEqual(self.location(), self.standby.address)
    self.stub = admin_pb2_grpc.AdminStub(self.second)
    await self.join(modelet)
    await self.ready()
    self.assertEqual((await self.listed()).modelet_addresses, [modelet.address])

  async def test_waiting_calls_end_when_another_server_leads(self):
    await self.publish()
    watching = asyncio.create_task(self.watch())
    waiting = asyncio.create_task(self.ready())
    changed = self.admin.controller.get(cell_fixture.MODEL).changed
    await self.eventually(lambda: changed.num_waiters == 2)
    # This process behaves as if it had been stopped until now.
    path = cell.cell_dir(self.fs_root, cell_fixture.CELL)
    self.assertTrue(shared_dir.open_dir(path).claim(2, 'somebody:1'))
    await self.fails(_Code.UNAVAILABLE, watching)
    await self.fails(_Code.UNAVAILABLE, waiting)
    text = await self.fails(_Code.UNAVAILABLE, self.publish('/sax/test/n'))
    self.assertIn('is on standby', text)

  async def test_former_leader_accepts_no_server(self):
    listed, followed = asyncio.Event(), asyncio.Event()
    look = connection.Connection.open

    async def look_slowly(self, timeout):
      status = await look(self, timeout)
      listed.set()
      await followed.wait()
      return status

    self.enterContext(
      mock.patch.object(connection.Connection, 'open', look_slowly)
    )
    modelet = await self.start_modelet()
    members = self.admin.controller.members
    joining = asyncio.create_task(self.join(modelet))
    await listed.wait()
    path = cell.cell_dir(self.fs_root, cell_fixture.CELL)
    self.assertTrue(shared_dir.open_dir(path).claim(2, 'somebody:1'))
    await self.eventually(lambda: self.admin.controller is None)
    followed.set()
    text = await self.fails(_Code.UNAVAILABLE, joining)
    self.assertIn('no longer leads', text)
    self.assertEmpty(members.all(lost_too=True))

  async def test_foreign_location_is_corrected(self):
    cell.write_location(
      self.root, cell_fixture.CELL, admin_pb2.Location(location='old:1')
    )
    await self.eventually(lambda: self.location() == self.admin.address)


if __name__ == '__main__':
  absltest.main()
