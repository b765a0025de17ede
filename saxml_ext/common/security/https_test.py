"""Tests of TLS on ports of HTTP, with a real server and the library's client."""

import asyncio
import dataclasses
import ssl
import unittest
from unittest import mock

from absl.testing import absltest

from saxml_ext.common.security import caller
from saxml_ext.common.security import https
from saxml_ext.common.security import key_files
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs


class HttpsTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    asyncio.get_running_loop().set_debug(False)
    self.enterContext(mock.patch.object(key_files, 'LOOK_SECS', 0.0))
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    tls.configure(self.certs.server())
    self.addCleanup(tls.configure, None)

  async def answer(
    self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
  ) -> None:
    certificate = writer.get_extra_info('peercert') or {}
    self.names = caller.names_in(certificate)
    await reader.readline()
    writer.write(b'hello\n')
    writer.close()

  async def serve(self, context: ssl.SSLContext | None) -> None:
    server = await asyncio.start_server(
      self.answer, '127.0.0.1', 0, ssl=context
    )
    self.port = server.sockets[0].getsockname()[1]
    self.addAsyncCleanup(server.wait_closed)
    self.addCleanup(server.close)

  async def serial(self, own: tls.Settings | None = None) -> str:
    """Asks once; returns the serial number of the server's certificate."""
    context = ssl.create_default_context(cafile=self.certs.ca_file)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # As Python does from 3.13.
    if own is not None:
      context.load_cert_chain(own.cert_file, own.key_file)
    reader, writer = await asyncio.open_connection(
      '127.0.0.1', self.port, ssl=context, server_hostname='cell.test'
    )
    try:
      writer.write(b'hello\n')
      if await reader.readline() != b'hello\n':
        raise ConnectionError('no answer')
      return writer.get_extra_info('peercert')['serialNumber']
    finally:
      writer.close()

  async def test_clients_need_no_certificates(self):
    await self.serve(https.server_context())
    self.assertTrue(https.is_set())
    self.assertNotEmpty(await self.serial())

  async def test_unless_they_are_asked_for(self):
    await self.serve(https.server_context(ssl.CERT_REQUIRED))
    self.assertNotEmpty(await self.serial(self.certs.make('alice')))
    with self.assertRaises((ssl.SSLError, ConnectionError)):
      await self.serial()

  async def test_names_of_those_who_show_one_are_known(self):
    await self.serve(https.server_context(ssl.CERT_OPTIONAL))
    await self.serial()
    self.assertEqual(self.names, ())
    await self.serial(self.certs.make('alice', 'spiffe://t/al', 'al.test'))
    self.assertEqual(self.names, ('spiffe://t/al', 'al.test'))

  async def test_files_are_replaced_under_a_running_server(self):
    await self.serve(https.server_context())
    first = await self.serial()
    self.assertEqual(await self.serial(), first)
    self.certs.server()
    second = await self.serial()
    self.assertNotEqual(second, first)
    with open(tls.current().cert_file, 'w', encoding='ascii') as f:
      f.write('broken')
    self.assertEqual(await self.serial(), second)

  async def test_without_a_certificate_it_is_plain_http(self):
    ca_only = dataclasses.replace(tls.Settings(), ca_file=self.certs.ca_file)
    for settings in (tls.Settings(), ca_only):
      tls.configure(settings)
      self.assertFalse(https.is_set())
      self.assertIsNone(https.server_context())


if __name__ == '__main__':
  absltest.main()
