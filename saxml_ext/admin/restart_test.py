"""Tests of a restarted admin server, and of failing storage."""

import asyncio
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.admin import cell_admin
from saxml_ext.admin.leadership import shared_dir
from saxml_ext.admin.testing import cell_fixture
from saxml_ext.common import cell
from saxml_ext.protobuf import admin_pb2

MODEL = cell_fixture.MODEL
_Code = grpc.StatusCode


class RestartTest(cell_fixture.CellTestCase):
  async def test_models_and_replicas_survive(self):
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
    # The model is already loaded, but an update may have been stored and not
    # sent.
    await self.eventually(lambda: len(modelet.calls) == 2)
    self.assertEqual(modelet.calls[1], f'Update {MODEL} None')

  async def test_new_leader_first_reads_all_servers(self):
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

  async def test_new_leader_loads_models_without_replica(self):
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
    other = cell_admin.AdminServer(self.root, cell_fixture.CELL, port)
    with self.assertRaisesRegex(Exception, f'port {port} is in use'):
      await other.start()
    await other.stop()
    self.assertEqual(cell.read_location(self.root, cell_fixture.CELL), location)


if __name__ == '__main__':
  absltest.main()
