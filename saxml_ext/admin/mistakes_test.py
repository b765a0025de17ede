"""Tests of the messages about a model that no server can serve."""

import asyncio
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.admin import readiness
from saxml_ext.admin.testing import cell_fixture

_RIGHT = 'saxml_ext.params.gptj.TinyTokenizedFP32'
_WRONG = 'saxml_ext.params.gptj.TinyTokenisedFP32'
_WHY = (
  f'no joined model server can serve the model path {_WRONG}. Did you mean'
  f' {_RIGHT}?'
)


class MistakesTest(cell_fixture.CellTestCase):
  async def missing(self) -> str:
    """Returns the reason why a replica of the model is missing."""
    [replica] = (await self.listed()).replicas
    self.assertEqual(replica.address, '')
    return replica.reason

  async def test_wrong_path_fails_at_once(self):
    await self.joined(_RIGHT)
    await self.publish(path=_WRONG)
    self.assertEqual(await self.missing(), '0 of 1 replicas: ' + _WHY)

  async def test_empty_cell_accepts_any_path(self):
    await self.publish(path=_WRONG)
    self.assertEqual(
      await self.missing(),
      '0 of 1 replicas: no model server has joined the cell',
    )
    await self.joined(_RIGHT)
    self.assertEqual(await self.missing(), '0 of 1 replicas: ' + _WHY)

  async def test_wait_gives_up(self):
    await self.joined(_RIGHT)
    await self.publish(path=_WRONG)
    with mock.patch.object(readiness, '_JOIN_SECS', 0.2):
      text = await self.fails(grpc.StatusCode.FAILED_PRECONDITION, self.ready())
    self.assertIn(_WHY, text)
    self.assertIn('publish it with the right path', text)

  async def test_wait_that_began_in_an_empty_cell_gives_up(self):
    await self.publish(path=_WRONG)
    with mock.patch.object(readiness, '_JOIN_SECS', 0.2):
      waiting = asyncio.create_task(self.ready())
      changed = self.admin.controller.get(cell_fixture.MODEL).changed
      await self.eventually(lambda: changed.num_waiters)
      await asyncio.sleep(0.3)  # The timeout starts with a join.
      self.assertFalse(waiting.done())
      await self.joined(_RIGHT)
      await self.fails(grpc.StatusCode.FAILED_PRECONDITION, waiting)

  async def test_wait_goes_on_until_a_server_of_that_kind_has_joined(self):
    await self.joined(_RIGHT)
    await self.publish(path=_WRONG)
    waiting = asyncio.create_task(self.ready())
    await self.eventually(
      lambda: self.admin.controller.get(cell_fixture.MODEL).changed.num_waiters
    )
    await self.joined(_WRONG)
    await waiting

  async def test_lost_server_counts_as_able_to_serve(self):
    modelet = await self.joined(_WRONG)
    await self.joined(_RIGHT)
    await modelet.pause()
    members = self.admin.controller.members
    await self.eventually(lambda: len(members.all()) == 1)
    await self.publish(path=_WRONG)
    self.assertIn(
      f'every model server that can serve {_WRONG} is lost',
      await self.missing(),
    )
    await modelet.start()
    await self.ready()

  async def test_occupied_servers_are_counted(self):
    await self.joined(_RIGHT)
    await self.publish('/sax/test/other', path=_RIGHT)
    await self.ready(model_id='/sax/test/other')
    await self.publish(path=_RIGHT)
    self.assertEqual(
      await self.missing(),
      f'0 of 1 replicas: no further server has room for {_RIGHT}. Of 1 that'
      ' can serve it, 1 have other models. By default, a server takes one'
      ' model. Start another model server, unpublish a model, or start the'
      ' admin server with --sax_admin_exp_assigner to place several models by'
      ' memory',
    )


if __name__ == '__main__':
  absltest.main()
