"""Tests of the status pages, as a browser gets them."""

import asyncio
import urllib.error
import urllib.request

from absl.testing import absltest
import grpc

from saxml_ext.admin import cell_fixture
from saxml_ext.admin import fake_modelet

MODEL = cell_fixture.MODEL
# Straight to loopback, whatever $http_proxy says.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class StatusPageTest(cell_fixture.CellTestCase):

  async def get(self, path: str, data: bytes | None = None) -> str:
    url = f'http://127.0.0.1:{self.admin.http_port}{path}'

    def fetch() -> str:
      with _OPENER.open(url, data=data, timeout=60) as response:
        return response.read().decode()

    return await asyncio.to_thread(fetch)

  async def test_cell(self):
    modelet = await self.joined()
    await self.publish(checkpoint='/ckpt/1', replicas=2)
    await self.ready()
    page = await self.get('/')
    self.assertIn('<title>/sax/test</title>', page)
    self.assertIn('<h1>/sax/test Cell Status</h1>', page)
    for text in (
        f'<a href="/model{MODEL}">{MODEL}</a>',
        '<td>2</td><td>1</td>',
        '/ckpt/1',
        '1 LOADED',
        f'<a href="/server/{modelet.address}">',
        'CHIP_TYPE_CPU',
        'CHIP_TOPOLOGY_1',
        f'{MODEL}: LOADED',
        'Active',
    ):
      self.assertIn(text, page)
    self.assertEqual(
        (await self.get('/anything')).partition('<body>')[0],
        page.partition('<body>')[0],
    )

  async def test_says_why_a_load_failed(self):
    await self.joined()
    await self.publish(checkpoint=fake_modelet.BAD_CHECKPOINT)
    await self.fails(grpc.StatusCode.FAILED_PRECONDITION, self.ready())
    page = await self.get('/model' + MODEL)
    self.assertIn('/sax/test Model Status', page)
    self.assertIn('1 FAILED', page)
    self.assertIn('Loading error: no such checkpoint', page)

  async def test_server(self):
    modelet = await self.joined()
    page = await self.get('/server/' + modelet.address)
    self.assertIn('/sax/test Server Status', page)
    self.assertIn('Idle', page)

  async def test_errors(self):
    for path, code in (
        ('/model/sax/test/x', 404),
        ('/model/x', 404),
        ('/server/x:1', 404),
    ):
      with self.assertRaises(urllib.error.HTTPError) as raised:
        await self.get(path)
      self.assertEqual(raised.exception.code, code)
      raised.exception.close()
    with self.assertRaises(urllib.error.HTTPError) as raised:
      await self.get('/', data=b'x')
    self.assertEqual(raised.exception.code, 405)
    raised.exception.close()

  async def test_markup_in_names_is_shown_not_obeyed(self):
    modelet = await self.start_modelet()
    await self.fails(grpc.StatusCode.NOT_FOUND, self.listed())
    with self.assertRaises(urllib.error.HTTPError) as raised:
      await self.get('/server/<script>')
    self.assertEqual(raised.exception.headers.get_content_type(), 'text/plain')
    raised.exception.close()
    await self.join(modelet)
    self.assertNotIn('<script', await self.get('/'))


if __name__ == '__main__':
  absltest.main()
