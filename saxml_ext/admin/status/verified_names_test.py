"""Tests of permissions by verified name on the status pages over TLS."""

import asyncio
import http.client
import json
import os
import re
import ssl
import unittest
import urllib.parse

from absl.testing import absltest

from saxml_ext.admin import cell_admin as server_lib
from saxml_ext.common import cell
from saxml_ext.common import net
from saxml_ext.common.security import acl_file
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.protobuf import admin_pb2

_CELL = '/sax/test'
_MODEL = _CELL + '/m'
_LISTS = {'acl/admins': ['alice'], 'acl/owners': ['bob']}


class VerifiedNamesTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    os.environ[net.LOOPBACK_VARIABLE] = '1'
    asyncio.get_running_loop().set_debug(False)
    directory = self.create_tempdir().full_path
    root = directory + '/root'
    config = admin_pb2.Config(fs_root=directory + '/fs', admin_acl='acl/admins')
    cell.write_config(root, _CELL, config)
    with open(acl_file.path_of(root, _CELL), 'w', encoding='utf-8') as f:
      json.dump(_LISTS, f)
    self.certs = cell_certs.CellCerts(directory + '/certs')
    tls.configure(self.certs.server())
    self.addCleanup(tls.configure, None)
    self.admin = server_lib.AdminServer(root, _CELL, 0, http_port=0)
    await self.admin.start()
    self.addAsyncCleanup(self.admin.stop)
    await self.admin.leading()
    await self.admin.controller.publish(
      admin_pb2.Model(
        model_id=_MODEL,
        model_path='p.A',
        checkpoint_path='None',
        admin_acl='acl/owners',
      )
    )

  async def ask(
    self, name: str, path: str, form: dict[str, str] | None = None
  ) -> tuple[int, str]:
    """Sends a request with a certificate, and returns status and text.

    Args:
      name: The owner of the certificate; '' sends none.
      path: The path of the page.
      form: The form to send, if any.
    """

    def fetch() -> tuple[int, str]:
      context = ssl.create_default_context(cafile=self.certs.ca_file)
      # The certificate has the name of the cell's servers, and not this
      # address.
      context.check_hostname = False
      if name:
        own = self.certs.make(name)
        context.load_cert_chain(own.cert_file, own.key_file)
      connection = http.client.HTTPSConnection(
        '127.0.0.1', self.admin.http_port, timeout=120, context=context
      )
      kind = {'Content-Type': 'application/x-www-form-urlencoded'}
      body = None if form is None else urllib.parse.urlencode(form)
      connection.request('GET' if body is None else 'POST', path, body, kind)
      response = connection.getresponse()
      text = response.read().decode()
      connection.close()
      return response.status, text

    return await asyncio.to_thread(fetch)

  async def test_permission_lists_decide(self):
    unpublish = '/unpublish?model=' + _MODEL
    for name, publishes, unpublishes in (
      ('alice', 200, 200),
      ('bob', 403, 200),
      ('carol', 403, 403),
      ('', 403, 403),
    ):
      status, page = await self.ask(name, '/')
      self.assertEqual(status, 200)
      self.assertIn(_MODEL, page)
      self.assertEqual('href="/publish"' in page, publishes == 200, name)
      status, _ = await self.ask(name, '/publish')
      self.assertEqual(status, publishes, name)
      status, text = await self.ask(name, unpublish)
      self.assertEqual(status, unpublishes, name)
    self.assertIn('acl/', text)
    _, page = await self.ask('bob', unpublish)
    form = dict(re.findall(' name="([^"]*)" value="([^"]*)"', page))
    # The token of a form alone gives no permission.
    status, _ = await self.ask('carol', '/unpublish', form)
    self.assertEqual(status, 403)
    self.assertLen(self.admin.controller.entries(), 1)
    status, _ = await self.ask('bob', '/unpublish', form)
    self.assertEqual(status, 303)
    self.assertEmpty(self.admin.controller.entries())


if __name__ == '__main__':
  absltest.main()
