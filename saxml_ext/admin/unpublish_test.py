"""Tests of models that are unpublished, and published again at once."""

import asyncio
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.admin.modelet import modelets
from saxml_ext.admin.testing import cell_fixture

MODEL = cell_fixture.MODEL


class WhileItLoadsTest(cell_fixture.CellTestCase):
  """Tests with a first load that never ends, unless the test ends it."""

  async def asyncSetUp(self):
    await super().asyncSetUp()
    self.modelet = await self.joined()
    self.modelet.gate.clear()
    await self.publish(checkpoint='/mistyped')
    await self.eventually(lambda: self.modelet.calls)

  async def test_name_is_free_at_once(self):
    await self.unpublish()
    await self.publish(checkpoint='/right')
    self.modelet.gate.set()
    await self.ready()
    self.assertCountEqual(
      self.modelet.calls,
      [
        f'Load {MODEL} /mistyped',
        f'Cancelled {MODEL}',
        f'Unload {MODEL}',
        f'Load {MODEL} /right',
      ],
    )
    self.assertEqual(self.modelet.calls[-1], f'Load {MODEL} /right')

  async def test_clients_are_not_sent_to_a_discarded_model(self):
    self.assertEqual(await self.addresses(), {self.modelet.address})
    await self.unpublish()
    await self.publish(checkpoint='/right')
    await self.eventually(lambda: f'Unload {MODEL}' in self.modelet.calls)
    self.assertEqual(
      (await self.listed()).modelet_addresses, [self.modelet.address]
    )
    call = self.watch(timeout=0.3)
    await self.fails(grpc.StatusCode.DEADLINE_EXCEEDED, call)
    self.modelet.gate.set()
    await self.ready()
    self.assertEqual(await self.addresses(), {self.modelet.address})

  async def test_another_server_does_not_wait(self):
    other = await self.joined()
    await self.unpublish()
    await self.publish(checkpoint='/right')
    await self.ready()
    self.assertEqual(other.calls, [f'Load {MODEL} /right'])

  async def test_queued_load_never_begins(self):
    await self.unpublish()
    await self.publish(checkpoint='/mistyped-too')
    await self.unpublish()
    await self.publish(checkpoint='/right')
    self.modelet.gate.set()
    await self.ready()
    self.assertNotIn(f'Load {MODEL} /mistyped-too', self.modelet.calls)
    # The server got one unload, for the load that had started.
    self.assertEqual(self.modelet.calls.count(f'Unload {MODEL}'), 1)

  async def test_server_without_a_begun_load_gets_no_command(self):
    await self.unpublish()
    self.modelet.calls.clear()
    # The unload of the first model waits, and the load of the next one is
    # queued behind it.
    await self.publish('/sax/test/other')
    await self.eventually(
      lambda: '/sax/test/other' in self.admin.controller.members.holders()
    )
    await self.unpublish('/sax/test/other')
    self.modelet.gate.set()
    await self.publish('/sax/test/last')
    await self.ready(model_id='/sax/test/last')
    self.assertFalse([c for c in self.modelet.calls if 'other' in c])


class WhileItServesTest(cell_fixture.CellTestCase):
  async def asyncSetUp(self):
    await super().asyncSetUp()
    self.modelet = await self.joined()
    await self.publish(checkpoint='/old')
    await self.ready()

  async def test_name_is_free_after_some_seconds(self):
    self.modelet.gate.clear()
    await self.unpublish()
    text = await self.fails(grpc.StatusCode.UNAVAILABLE, self.publish())
    self.assertIn('{test m} is being unpublished, please retry later', text)
    with mock.patch.object(modelets, '_DRAIN_SECS', 0.0):
      await self.publish()
    self.modelet.gate.set()
    await self.ready()

  async def test_name_is_free_once_it_is_unloaded(self):
    self.modelet.gate.clear()
    await self.unpublish()
    self.modelet.gate.set()
    [known] = self.admin.controller.members.all()
    await self.eventually(lambda: not known.is_draining(MODEL))
    await self.publish()
    await self.ready()

  async def test_both_changes_in_one_write_load_the_new_one(self):
    new = (await self.listed()).model
    new.ClearField('method_names')
    new.checkpoint_path = '/new'
    controller = self.admin.controller
    await asyncio.gather(controller.unpublish(MODEL), controller.publish(new))
    await self.ready()
    self.assertEqual(
      self.modelet.calls,
      [f'Load {MODEL} /old', f'Unload {MODEL}', f'Load {MODEL} /new'],
    )


if __name__ == '__main__':
  absltest.main()
