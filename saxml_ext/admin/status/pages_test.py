"""Tests of the changes that users can make on status pages, and of headers."""

import asyncio
import html
import http.client
import re
import urllib.parse

from absl.testing import absltest
from prometheus_client import parser

from saxml_ext.admin.testing import cell_fixture
from saxml_ext.admin.testing import fake_modelet
from saxml_ext.common import net

MODEL = cell_fixture.MODEL
_FORM = 'application/x-www-form-urlencoded'


def fields(page: str) -> dict[str, str]:
  """Returns the inputs of a page's form, as a browser would send them."""
  result = {}
  for tag in re.findall('<input[^>]*>', page):
    [name] = re.findall(' name="([^"]*)"', tag)
    [value] = re.findall(' value="([^"]*)"', tag)
    result[name] = html.unescape(value)
  return result


class PagesTest(cell_fixture.CellTestCase):
  async def ask(
    self, path: str, form: dict[str, str] | None = None, **headers: str
  ) -> tuple[int, str, dict[str, str]]:
    """Sends a request, and returns status, text and headers of the response."""

    def fetch():
      connection = http.client.HTTPConnection(
        '127.0.0.1', self.admin.http_port, timeout=120
      )
      body = None if form is None else urllib.parse.urlencode(form)
      sent = {'Content-Type': _FORM, **headers} if body is not None else headers
      connection.request('GET' if form is None else 'POST', path, body, sent)
      response = connection.getresponse()
      text = response.read().decode()
      connection.close()
      return response.status, text, dict(response.getheaders())

    return await asyncio.to_thread(fetch)

  async def filled(self, **values: str) -> dict[str, str]:
    """Returns the filled-in form to publish a model."""
    status, page, _ = await self.ask('/publish')
    self.assertEqual(status, 200)
    self.assertIn('<option value="p.A">', page)
    return {**fields(page), 'model': MODEL, 'path': 'p.A', **values}

  async def test_publishes_and_unpublishes_once_confirmed(self):
    await self.joined()
    given = await self.filled(overrides='BATCH_SIZE=4\nNAME="<b>"')
    status, page, _ = await self.ask('/publish', given)
    self.assertEqual(status, 200, page)
    self.assertIn('Publish this model?', page)
    self.assertIn('&lt;b&gt;', page)
    self.assertNotIn('<b>', page)
    self.assertEmpty(self.admin.controller.entries())
    status, _, headers = await self.ask('/publish', fields(page))
    self.assertEqual((status, headers['location']), (303, '/model' + MODEL))
    await self.ready()
    model = self.admin.controller.get(MODEL).model
    self.assertEqual(
      dict(model.overrides), {'BATCH_SIZE': '4', 'NAME': '"<b>"'}
    )
    _, page, _ = await self.ask('/')
    [path] = re.findall('href="(/unpublish[^"]*)"', page)
    status, page, _ = await self.ask(html.unescape(path))
    self.assertEqual(status, 200)
    self.assertLen(self.admin.controller.entries(), 1)
    status, _, headers = await self.ask('/unpublish', fields(page))
    self.assertEqual((status, headers['location']), (303, '/'))
    self.assertEmpty(self.admin.controller.entries())

  async def test_invalid_form_is_shown_again_with_the_error(self):
    await self.joined()
    for values, code, words in (
      ({'replicas': '-1'}, 400, 'replicas is'),
      ({'overrides': 'no value'}, 400, 'KEY=VALUE'),
      ({'model': '/sax/other/m'}, 400, 'other'),
      ({'path': '<script>'}, 400, '&lt;script&gt;'),
    ):
      status, page, _ = await self.ask('/publish', await self.filled(**values))
      self.assertEqual(status, code, page)
      self.assertIn(words, page)
      self.assertIn('<option value="p.A">', page)
      self.assertNotIn('<script>', page)
    await self.publish()
    given = {**await self.filled(), 'confirmed': 'yes'}
    status, page, _ = await self.ask('/publish', given)
    self.assertEqual(status, 409)
    self.assertIn('already exists', page)
    status, _, _ = await self.ask('/unpublish?model=/sax/test/no')
    self.assertEqual(status, 404)

  async def test_likely_mistakes_are_shown_before_a_publish(self):
    await self.joined()
    given = await self.filled(path='p.a', overrides='BATCH_SIZ=8')
    _, page, _ = await self.ask('/publish', given)
    page = html.unescape(page)
    self.assertIn('Warning: no joined model server can serve the', page)
    self.assertIn('Did you mean p.A?', page)
    self.assertIn('Warning: override BATCH_SIZ has no effect', page)
    self.assertIn('Did you mean BATCH_SIZE?', page)
    self.assertIn('Publish it', page)
    given = await self.filled(overrides='BATCH_SIZE=8')
    _, page, _ = await self.ask('/publish', given)
    self.assertNotIn('Warning', page)

  async def test_overrides_that_no_params_have_are_refused(self):
    await self.joined()
    path = 'saxml_ext.params.gptj.TinyFP32'
    given = await self.filled(path=path, overrides='BATCHSIZE=3')
    for confirmed in ({}, {'confirmed': 'yes'}):
      status, page, _ = await self.ask('/publish', given | confirmed)
      self.assertEqual(status, 400)
      self.assertIn('Did you mean BATCH_SIZE?', html.unescape(page))

  async def test_other_sites_cannot_change_the_cell(self):
    await self.joined()
    given = {**await self.filled(), 'confirmed': 'yes'}
    for changed, headers in (
      ({'token': ''}, {}),
      ({'token': 'guessed'}, {}),
      ({}, {'Host': 'evil.example'}),
      ({}, {'Origin': 'http://evil.example'}),
      ({}, {'Origin': 'null'}),
      ({}, {'X-Forwarded-For': '127.0.0.1'}),
      ({}, {'Via': '1.1 proxy'}),
      ({}, {'X-Real-IP': '127.0.0.1'}),
      ({}, {'X-Forwarded-Proto': 'https'}),
      ({}, {'CF-Connecting-IP': '127.0.0.1'}),
      ({}, {'Host': '['}),
      ({}, {'Origin': 'http://['}),
      ({}, {'Sec-Fetch-Site': 'same-site'}),
    ):
      status, text, _ = await self.ask(
        '/publish', {**given, **changed}, **headers
      )
      self.assertEqual(status, 403, text)
    status, _, _ = await self.ask(
      '/publish', given, **{'Content-Type': 'text/plain'}
    )
    self.assertEqual(status, 400)
    self.assertEmpty(self.admin.controller.entries())
    for headers in ({'Host': 'evil.example'}, {'Host': '['}):
      status, page, _ = await self.ask('/', **headers)
      self.assertEqual(status, 200)
      self.assertNotIn('/publish', page)
    same = {
      'Origin': f'http://127.0.0.1:{self.admin.http_port}',
      'Sec-Fetch-Site': 'same-origin',
    }
    status, _, _ = await self.ask('/publish', given, **same)
    self.assertEqual(status, 303)

  def test_only_this_machine_may_change_the_cell(self):
    self.assertTrue(net.is_loopback('::1'))
    self.assertTrue(net.is_loopback('::ffff:127.0.0.1'))
    for address in ('10.0.0.1', '::ffff:10.0.0.1', 'localhost', ''):
      self.assertFalse(net.is_loopback(address), address)

  async def test_pages_load_only_their_own_files(self):
    await self.joined()
    for path in ('/', '/publish', '/server/x', '/static/page.css'):
      _, _, headers = await self.ask(path)
      policy = headers['content-security-policy']
      self.assertIn("default-src 'none'", policy)
      self.assertIn("frame-ancestors 'none'", policy)
      self.assertEqual(headers['x-content-type-options'], 'nosniff')
    for path, kind in (
      ('/static/page.css', 'text/css'),
      ('/static/live.js', 'text/javascript'),
    ):
      status, text, headers = await self.ask(path)
      self.assertEqual(status, 200)
      self.assertStartsWith(headers['content-type'], kind)
      self.assertNotIn('http', re.sub('//.*', '', text))
    _, text, _ = await self.ask('/static/..%2fpages.py')
    self.assertNotIn('class Pages', text)

  async def test_plots_show_reported_figures(self):
    modelet = await self.joined()
    await self.publish()
    await self.ready()
    await self.eventually(lambda: len(self.admin.history.samples) > 2)
    for path in ('/', '/model' + MODEL, '/server/' + modelet.address):
      _, page, _ = await self.ask(path)
      self.assertIn('Throughput', page)
      self.assertIn('<polyline', page)
      self.assertNotIn('style=', page)

  async def test_metrics(self):
    await self.joined()
    await self.publish(checkpoint=fake_modelet.BAD_CHECKPOINT)
    _, text, _ = await self.ask('/metrics')
    families = {
      (s.name, *(s.labels[k] for k in sorted(s.labels))): s.value
      for family in parser.text_string_to_metric_families(text)
      for s in family.samples
    }
    for key, value in (
      (('sax_admin_leads',), 1),
      (('sax_admin_published_models',), 1),
      (('sax_admin_requested_replicas',), 1),
      (('sax_admin_model_servers', 'living'), 1),
      (('sax_admin_model_servers', 'lost'), 0),
    ):
      self.assertEqual(families.get(key), value, key)
    self.assertIn(('sax_admin_replicas', 'LOADED'), families)
    published = ('grpc_server_handled_total', 'OK', 'Publish', 'sax.Admin')
    self.assertGreaterEqual(families[published], 1)

  async def test_standby_page_has_no_forms(self):
    self.admin.controller, kept = None, self.admin.controller
    status, text, _ = await self.ask('/publish')
    self.admin.controller = kept
    self.assertEqual(status, 503)
    self.assertIn('is on standby', text)


if __name__ == '__main__':
  absltest.main()
