"""Tests the list of a cell's models."""

import asyncio
import unittest

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors
from saxml_ext.http.protocol import problems
from saxml_ext.http.web import catalogue

_MODEL = fake_cell.MODEL


class CatalogueTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    asyncio.get_running_loop().set_debug(False)
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    sax.SetRoot(self.cell.root)
    self.now = 1000.0
    self.catalogue = catalogue.Catalogue(fake_cell.CELL, clock=lambda: self.now)

  def num_lists(self) -> int:
    """Returns the number of calls to the admin server."""
    return len(self.cell.admin.requests)

  async def test_names(self):
    for name in ('m', _MODEL, None):
      self.assertEqual(await self.catalogue.find(name), _MODEL)
    for name in ('x', '/sax/other/m', '/sax/test/m/m', '../m', 'm' * 10_000):
      with self.assertRaises(problems.Problem) as e:
        await self.catalogue.find(name)
      self.assertEqual(e.exception.status, 404)
    # All lookups within a second share one call.
    self.assertEqual(self.num_lists(), 1)

  async def test_concurrent_requests_share_one_list(self):
    await asyncio.gather(*(self.catalogue.find('m') for _ in range(20)))
    self.assertEqual(self.num_lists(), 1)

  async def test_new_models_are_found_within_a_second(self):
    await self.catalogue.find('m')
    self.cell.publish('/sax/test/n')
    with self.assertRaises(problems.Problem):
      await self.catalogue.find('n')
    self.now += 1.1
    self.assertEqual(await self.catalogue.find('n'), '/sax/test/n')
    with self.assertRaisesRegex(problems.Problem, 'publishes 2 models'):
      await self.catalogue.find(None)

  async def test_known_models_need_no_admin_server(self):
    await self.catalogue.find('m')
    self.cell.admin.stop()
    self.now += 20
    self.assertEqual(await self.catalogue.find('m'), _MODEL)
    self.assertEqual(await self.catalogue.find(None), _MODEL)
    await self.catalogue.check_health()
    self.now += 20
    with self.assertRaises(errors.SaxError):
      await self.catalogue.check_health()
    # Lookups just after a failure get the same error without waiting.
    for _ in range(10):
      with self.assertRaises(errors.SaxError):
        await self.catalogue.find('x')
    self.assertEqual(await self.catalogue.find('m'), _MODEL)

  async def test_cancelled_request_does_not_end_the_list(self):
    first = asyncio.create_task(self.catalogue.published())
    second = asyncio.create_task(self.catalogue.published())
    await asyncio.sleep(0)
    first.cancel()
    self.assertIn(_MODEL, await second)
    self.assertEqual(self.num_lists(), 1)

  async def test_unpublished_models_are_removed(self):
    await self.catalogue.find('m')
    model = self.catalogue.model(_MODEL)
    self.assertIs(self.catalogue.model(_MODEL), model)
    del self.cell.admin.models[_MODEL]
    self.now += 2
    await self.catalogue.published()
    self.assertIsNot(self.catalogue.model(_MODEL), model)


if __name__ == '__main__':
  absltest.main()
