"""Tests of the status pages, as a browser gets them."""

import asyncio
import html
import re
import urllib.error
import urllib.request

from absl.testing import absltest
import grpc

from saxml_ext.admin.testing import cell_fixture
from saxml_ext.admin.testing import fake_modelet

MODEL = cell_fixture.MODEL
# The opener connects to loopback directly, even if $http_proxy is set.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def rows(page: str) -> list[str]:
  """Returns the rows of a page's tables as text: "cell | cell"."""
  return [
    ' | '.join(
      html.unescape(re.sub('<[^>]*>', '', cell))
      for cell in re.findall('<td[^>]*>(.*?)</td>', row)
    )
    for row in re.findall('<tr>(.*?)</tr>', page, re.DOTALL)
  ]


class StatusPageTest(cell_fixture.CellTestCase):
  async def get(self, path: str, data: bytes | None = None) -> str:
    url = f'http://127.0.0.1:{self.admin.http_port}{path}'

    def fetch() -> str:
      with _OPENER.open(url, data=data, timeout=120) as response:
        return response.read().decode()

    return await asyncio.to_thread(fetch)

  async def get_rows(self, path: str) -> str:
    return '\n'.join(rows(await self.get(path)))

  async def test_cell_page_lists_models_and_servers(self):
    modelet = await self.joined()
    await self.publish(checkpoint='/ckpt/1', replicas=2)
    await self.ready()
    page = await self.get('/')
    self.assertIn('<title>/sax/test</title>', page)
    self.assertIn('<h1>/sax/test Cell Status</h1>', page)
    for text in (
      f'<a href="/model{MODEL}">{MODEL}</a>',
      f'<a href="/server/{modelet.address}">',
    ):
      self.assertIn(text, page)
    why = (
      '1 of 2 replicas: no further server has room for p.A. Of 1 that can serve'
      ' it, 1 have this model'
    )
    self.assertIn(
      f'{MODEL} | Incomplete | 2 | 1 | p.A | /ckpt/1'
      f' | {modelet.address}: LOADED | {why} | Unpublish',
      rows(page),
    )
    self.assertIn(
      f'{modelet.address} | Active | {MODEL}: LOADED | CHIP_TYPE_CPU'
      ' | CHIP_TOPOLOGY_1 | unknown | ',
      '\n'.join(rows(page)),
    )
    # The page loads nothing from other sites.
    self.assertNotRegex(page, 'src="[^/]|url\\(|@import|https?://')
    # The link stays visible in a window of 390 pixels, and users can search for
    # names.
    self.assertIn('<td class="short pinned"><a href="/unpublish', page)
    css = await self.get('/static/page.css')
    self.assertIn('.pinned { position: sticky; right: 0', css)
    self.assertIn('>/ckpt/1<', page)

  async def test_titles_describe_the_page(self):
    modelet = await self.joined()
    await self.publish()
    for path, name in (
      ('/model' + MODEL, MODEL),
      ('/server/' + modelet.address, modelet.address),
    ):
      page = await self.get(path)
      self.assertIn(f'<title>{name}</title>', page)

  async def test_unknown_path_is_not_found(self):
    for path in ('/nothing', '/models', '/model', '/static', '/%3Cb%3E'):
      with self.assertRaises(urllib.error.HTTPError) as raised:
        await self.get(path)
      page = raised.exception.read().decode()
      raised.exception.close()
      self.assertEqual(raised.exception.code, 404, path)
      self.assertIn('<a href="/">Show the cell</a>', page)
      self.assertNotIn('<b>', page)

  async def test_unassigned_model_has_a_reason(self):
    await self.joined('lm.params.GPTJ4')
    await self.publish(path='lm.params.GPTJ5')
    page = await self.get('/')
    self.assertIn(
      f'{MODEL} | Not assigned | 1 | 0 | lm.params.GPTJ5 | None |  | 0 of 1'
      ' replicas: no joined model server can serve the model path'
      ' lm.params.GPTJ5. Did you mean lm.params.GPTJ4?'
      ' | Unpublish',
      rows(page),
    )

  async def test_model_page_shows_settings(self):
    await self.joined()
    await self.publish(overrides={'BATCH_SIZE': '4'})
    await self.ready()
    table = rows(await self.get('/model' + MODEL))
    self.assertIn('Methods | lm.generate, lm.score', table)
    self.assertIn('Override BATCH_SIZE | 4', table)

  async def test_page_of_an_empty_cell(self):
    self.assertIn('No model is published', await self.get('/'))

  async def test_page_of_a_lost_server(self):
    modelet = await self.joined()
    await modelet.kill()
    members = self.admin.controller.members
    await self.eventually(lambda: not members.all())
    self.assertIn(f'{modelet.address} | Lost | Idle', await self.get_rows('/'))

  async def test_failed_load_has_a_reason(self):
    await self.joined()
    await self.publish(checkpoint=fake_modelet.BAD_CHECKPOINT)
    await self.fails(grpc.StatusCode.FAILED_PRECONDITION, self.ready())
    page = await self.get('/model' + MODEL)
    self.assertIn('/sax/test Model Status', page)
    self.assertIn('Failed', page)
    self.assertIn('Loading error: no such checkpoint', page)

  async def test_server_page_shows_its_models(self):
    modelet = await self.joined()
    page = await self.get('/server/' + modelet.address)
    self.assertIn('/sax/test Server Status', page)
    self.assertIn('Idle', page)
    self.assertIn('p.A', rows(page))
    self.assertIn('No model is loaded', page)
    await self.publish()
    await self.ready()
    page = await self.get('/server/' + modelet.address)
    self.assertIn(f'{MODEL} | lm.score | 0.00 | 0.00 |  | ', rows(page))

  async def test_group_page_shows_its_hosts(self):
    modelet = await self.start_modelet()
    modelet.hosts = ('tpu-0', 'tpu-1', 'tpu-2', '<b>')
    await self.join(modelet)
    single = await self.joined()
    await self.publish(replicas=3)
    await self.ready(2)
    table = '\n'.join(rows(await self.get('/')))
    names = '4: tpu-0, tpu-1, tpu-2, <b>'
    self.assertIn(
      f'{modelet.address} | {names} | Active | {MODEL}: LOADED', table
    )
    self.assertIn(f'{single.address} |  | Active | {MODEL}: LOADED', table)
    self.assertIn(f'{modelet.address} (4 hosts): LOADED', table)
    path = '/server/' + modelet.address
    table = rows(await self.get(path))
    self.assertIn('0 | tpu-0 | leader', table)
    self.assertIn('3 | <b> | follower', table)
    self.assertNotIn('<b>', await self.get(path))
    self.assertIn(
      'sax_admin_hosts{state="living"} 5', await self.get('/metrics')
    )
    await self.join(modelet, leaving='host tpu-1 (process 1) & why')
    self.assertIn('sax_admin_hosts{state="lost"} 4', await self.get('/metrics'))
    page = await self.get_rows('/')
    self.assertIn(f'{names} | Losthost tpu-1 (process 1) & why | Idle', page)
    self.assertIn(
      f'{modelet.address}: the server has left (host tpu-1 (process 1) & why).'
      ' It gets the model again if it comes back soon',
      page,
    )
    # Without groups, there is no column for their hosts.
    page = await self.get('/server/' + single.address)
    self.assertNotIn('Hosts', page)

  async def test_errors_are_pages(self):
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

  async def test_markup_in_names_is_escaped(self):
    modelet = await self.start_modelet()
    await self.fails(grpc.StatusCode.NOT_FOUND, self.listed())
    with self.assertRaises(urllib.error.HTTPError) as raised:
      await self.get('/server/<script>')
    self.assertEqual(raised.exception.headers.get_content_type(), 'text/plain')
    raised.exception.close()
    await self.join(modelet)
    self.assertNotIn('<script>', await self.get('/'))


if __name__ == '__main__':
  absltest.main()
