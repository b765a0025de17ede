"""Tests of TLS between real servers and channels, over loopback."""

import asyncio
import dataclasses
import os
import unittest
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs

_METHOD = '/test.Test/Who'


async def _who(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
  """Returns the connection's serial number and the caller's DNS names."""
  del request
  names = context.auth_context().get('peer_dns', ())
  return context.peer().encode() + b' ' + b','.join(names)


class TlsTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    asyncio.get_running_loop().set_debug(False)
    self.enterContext(mock.patch.object(tls, 'LOOK_SECS', 0.0))
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    self.server_tls = self.certs.server()
    self.client_tls = self.certs.make('alice', 'alice.test')
    self.addCleanup(tls.configure, None)

  async def serve(self, settings: tls.Settings) -> str:
    """Starts a server with these settings, and returns its address."""
    tls.configure(settings)
    server = grpc_aio.make_server()
    handler = grpc.unary_unary_rpc_method_handler(_who, bytes)
    server.add_registered_method_handlers('test.Test', {'Who': handler})
    address = f'127.0.0.1:{grpc_util.listen(server, 0, "127.0.0.1")}'
    await server.start()
    self.addAsyncCleanup(server.stop, 0)
    return address

  def channel(self, address: str, settings: tls.Settings) -> grpc.aio.Channel:
    tls.configure(settings)
    channel = grpc_aio.channel(address)
    self.addAsyncCleanup(channel.close)
    return channel

  async def ask(self, channel: grpc.aio.Channel) -> str:
    answer = await channel.unary_unary(_METHOD)(b'', timeout=60)
    return answer.decode()

  async def refusal(self, address: str, settings: tls.Settings) -> str:
    """Returns the error message of a client that cannot connect."""
    with self.assertRaises(grpc.aio.AioRpcError) as caught:
      await self.ask(self.channel(address, settings))
    error = errors.from_rpc_error(caught.exception)
    self.assertIsInstance(error, errors.Unavailable)
    return error.message

  async def test_mutual_tls(self):
    address = await self.serve(self.server_tls)
    answer = await self.ask(self.channel(address, self.client_tls))
    self.assertEndsWith(answer, ' alice.test')

  async def test_blocking_channel_uses_tls(self):
    address = await self.serve(self.server_tls)
    tls.configure(self.client_tls)
    with grpc_util.channel(address) as channel:
      answer = await asyncio.to_thread(channel.unary_unary(_METHOD), b'')
    self.assertEndsWith(answer, b' alice.test')

  async def test_server_without_client_ca_requires_no_certificate(self):
    settings = dataclasses.replace(self.server_tls, require_client_certs=False)
    address = await self.serve(settings)
    client = tls.Settings(ca_file=self.certs.ca_file, server_name='cell.test')
    answer = await self.ask(self.channel(address, client))
    self.assertEndsWith(answer, ' ')

  async def test_clients_without_a_certificate_are_refused(self):
    address = await self.serve(self.server_tls)
    client = tls.Settings(ca_file=self.certs.ca_file, server_name='cell.test')
    text = await self.refusal(address, client)
    self.assertIn('--tls_cert_file and --tls_key_file', text)
    self.assertIn('--tls_ca_file', await self.refusal(address, tls.Settings()))

  async def test_certificates_of_other_authorities_are_refused(self):
    address = await self.serve(self.server_tls)
    other = cell_certs.CellCerts(self.create_tempdir().full_path)
    stranger = dataclasses.replace(
      other.make('alice', 'alice.test'), ca_file=self.certs.ca_file
    )
    self.assertIn(
      'closed the connection', await self.refusal(address, stranger)
    )
    client = dataclasses.replace(self.client_tls, ca_file=other.ca_file)
    text = await self.refusal(address, client)
    self.assertIn('not from an authority in --tls_ca_file', text)

  async def test_server_with_another_name_is_refused(self):
    address = await self.serve(self.server_tls)
    client = dataclasses.replace(self.client_tls, server_name='other.test')
    self.assertIn('--tls_server_name', await self.refusal(address, client))

  async def test_plain_text_server_is_refused(self):
    address = await self.serve(tls.Settings())
    text = await self.refusal(address, self.client_tls)
    self.assertIn('speaks plain text', text)

  async def test_running_server_uses_replaced_certificates(self):
    address = await self.serve(self.server_tls)
    old = self.channel(address, self.client_tls)
    first = await self.ask(old)
    # Clients notice that the certificate has expired. The server, which read it
    # earlier, does not.
    with mock.patch.object(tls.KeyFiles, '_read', _unchecked):
      self.certs.make('server', 'cell.test', days=-1)
      text = await self.refusal(address, self.client_tls)
    self.assertIn('the certificate of the server has expired', text)
    self.certs.server()
    second = await self.ask(self.channel(address, self.client_tls))
    self.assertNotEqual(first, second)
    self.assertEqual(first, await self.ask(old))  # The old connection.

  async def test_broken_file_is_ignored(self):
    address = await self.serve(self.server_tls)
    for content in (b'', b'-----BEGIN CERTIFICATE-----\nAAAA\n'):
      with open(self.server_tls.cert_file, 'wb') as f:
        f.write(content)
      await self.ask(self.channel(address, self.client_tls))
    os.remove(self.server_tls.key_file)
    await self.ask(self.channel(address, self.client_tls))

  async def test_new_channels_use_the_new_certificate(self):
    address = await self.serve(self.server_tls)
    tls.configure(self.client_tls)
    version = tls.version()
    self.assertIs(tls.version(), version)
    self.certs.make('alice', 'bob.test')
    self.assertIsNot(tls.version(), version)
    answer = await self.ask(self.channel(address, self.client_tls))
    self.assertEndsWith(answer, ' bob.test')


def _unchecked(files: tls.KeyFiles) -> tls.Content:
  parts = []
  for path in (files._cert_file, files._key_file, files._ca_file):
    with open(path, 'rb') as f:
      parts.append(f.read())
  return tls.Content(*parts)


class SettingsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    self.addCleanup(tls.configure, None)

  def refused(self, settings: tls.Settings) -> str:
    tls.configure(settings)
    with self.assertRaises(errors.InvalidArgument) as caught:
      tls.server_credentials()
    return caught.exception.message

  def test_plain_text_is_the_default(self):
    tls.configure(tls.Settings())
    self.assertIsNone(tls.server_credentials())
    self.assertIsNone(tls.channel_credentials())
    self.assertEqual(tls.channel_options(), ())

  def test_incomplete_settings_are_refused(self):
    good = self.certs.server()
    for change, text in (
      ({'key_file': ''}, 'needs --tls_key_file'),
      ({'cert_file': ''}, 'needs --tls_cert_file'),
      ({'cert_file': '', 'key_file': ''}, 'needs its own certificate'),
    ):
      changed = tls.Settings(**(dataclasses.asdict(good) | change))
      self.assertIn(text, self.refused(changed))
    self.assertIn(
      'is the only TLS setting', self.refused(tls.Settings(server_name='a'))
    )

  def test_unusable_files_are_refused(self):
    good = self.certs.server()
    other = self.certs.make('other')
    expired = self.certs.make('expired', days=-1)
    for settings, text in (
      (dataclasses.replace(good, cert_file='/no'), 'No such file'),
      (dataclasses.replace(good, key_file=other.key_file), 'another certif'),
      (dataclasses.replace(good, cert_file=good.key_file), 'no certificate'),
      (dataclasses.replace(good, key_file=good.cert_file), 'not a private key'),
      (dataclasses.replace(good, ca_file=good.key_file), 'no certificate'),
      (expired, 'certificate of expired expired at'),
    ):
      self.assertIn(text, self.refused(settings))

  def test_environment_applies_if_nothing_is_configured(self):
    self.assertEqual(tls.from_environment({}), tls.Settings())
    settings = tls.from_environment(
      {
        'SAX_TLS_CERT_FILE': 'c',
        'SAX_TLS_KEY_FILE': 'k',
        'SAX_TLS_CA_FILE': 'a',
        'SAX_TLS_SERVER_NAME': 'n',
        'SAX_TLS_REQUIRE_CLIENT_CERTS': 'False',
      }
    )
    self.assertEqual(settings, tls.Settings('c', 'k', 'a', 'n', False))
    with self.assertRaisesRegex(errors.InvalidArgument, 'neither true nor'):
      tls.from_environment({'SAX_TLS_REQUIRE_CLIENT_CERTS': 'perhaps'})


if __name__ == '__main__':
  absltest.main()
