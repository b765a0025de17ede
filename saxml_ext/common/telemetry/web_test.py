"""Tests of the HTTP server that shares a program's event loop."""

import asyncio
import dataclasses
import os
import resource
import signal
import socket
import ssl
import unittest
from unittest import mock
import urllib.request

from absl.testing import absltest
from starlette import applications
from starlette import requests
from starlette import responses
from starlette import routing

from saxml_ext.common.security import access
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.common.telemetry import sockets
from saxml_ext.common.telemetry import web

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


_GET = b'GET /who HTTP/1.1\r\nHost: x\r\n\r\n'
_CLOSE = _GET.replace(b'\r\n\r\n', b'\r\nConnection: close\r\n\r\n')


async def _who(request: requests.Request) -> responses.Response:
  await asyncio.sleep(float(request.headers.get('secs', '0')))
  return responses.JSONResponse(request.state.peer_certificate)


class WebServerTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def make(self) -> web.WebServer:
    routes = [routing.Route('/who', _who, methods=['GET', 'POST'])]
    app = applications.Starlette(routes=routes)
    return web.WebServer(app, most_per_client=3, most=6)

  async def start(self, listener: socket.socket | None = None) -> web.WebServer:
    server = self.make()
    await server.start(0, listener=listener)
    self.addAsyncCleanup(server.stop)
    return server

  async def connect(
    self, server: web.WebServer, address: str = '127.0.0.1'
  ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(
      '127.0.0.1', server.port, local_addr=(address, 0)
    )
    self.addCleanup(writer.close)
    return reader, writer

  async def answer(self, server: web.WebServer, data: bytes) -> bytes:
    reader, writer = await self.connect(server)
    writer.write(data)
    got = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return got

  async def get(self, server: web.WebServer, host: str) -> str:
    def fetch() -> str:
      url = f'http://{host}:{server.port}/who'
      with _OPENER.open(url, timeout=120) as response:
        return response.read().decode()

    return await asyncio.to_thread(fetch)

  async def test_server_keeps_signal_handlers(self):
    before = signal.getsignal(signal.SIGTERM)
    server = self.make()
    await server.start(0)
    self.assertEqual(await self.get(server, '127.0.0.1'), '{}')
    self.assertIs(signal.getsignal(signal.SIGTERM), before)
    await server.stop()
    with self.assertRaises(OSError):
      await self.get(server, '127.0.0.1')

  async def test_server_listens_on_every_interface(self):
    server = self.make()
    await server.start(0, '')
    self.assertEqual(await self.get(server, '127.0.0.1'), '{}')
    await server.stop()

  async def test_a_header_must_arrive_in_time(self):
    with mock.patch.object(web, '_HEADER_SECS', 0.2):
      server = await self.start()
      for before in (b'', _GET, _GET * 2):
        reader, writer = await self.connect(server)
        writer.write(before)
        for _ in range(before.count(_GET)):
          await reader.readuntil(b'{}')
        writer.write(b'GET /who HTTP/1.1\r\n')
        self.assertEqual(await asyncio.wait_for(reader.read(), 60), b'')
        writer.close()

  async def test_the_rest_of_an_answered_body_must_arrive_in_time(self):
    with mock.patch.object(web, '_HEADER_SECS', 0.2):
      server = await self.start()
      reader, writer = await self.connect(server)
      writer.write(
        _GET.replace(b'GET', b'POST').replace(
          b'\r\n\r\n', b'\r\nContent-Length: 9\r\n\r\n1'
        )
      )
      await reader.readuntil(b'{}')
      writer.write(b'2')
      self.assertEqual(await asyncio.wait_for(reader.read(), 60), b'')

  async def test_connections_of_one_client_are_bounded(self):
    server = await self.start()
    held = [await self.connect(server) for _ in range(3)]
    for reader, writer in held:
      writer.write(_GET)
      await reader.readuntil(b'{}')
    got = await self.answer(server, _GET)
    self.assertStartsWith(got.decode(), 'HTTP/1.1 429')
    self.assertIn(b'127.0.0.1 has 3 connections', got)
    # Other clients still get a response. So does this client after it closes a
    # connection.
    reader, writer = await self.connect(server, '127.0.0.2')
    writer.write(_GET)
    await reader.readuntil(b'{}')
    held[0][1].close()
    for _ in range(1000):  # The extra line end closes the connection.
      if not (await self.answer(server, _GET + b'\n')).startswith(
        b'HTTP/1.1 429'
      ):
        return
    self.fail('a closed connection still counts')

  async def test_a_connection_beyond_the_limit_replaces_an_idle_one(self):
    server = await self.start()
    held = []
    for i in range(6):
      reader, writer = await self.connect(server, f'127.0.0.{2 + i // 3}')
      writer.write(_GET)
      await reader.readuntil(b'{}')
      held.append((reader, writer))
    for _ in range(5):
      self.assertStartsWith(
        (await self.answer(server, _CLOSE)).decode(), 'HTTP/1.1 200'
      )
    # The oldest idle one of the clients with most connections is closed.
    self.assertEqual(await asyncio.wait_for(held[0][0].read(), 60), b'')
    self.assertLen(server._config.clients['127.0.0.3'], 3)

  async def test_connections_with_requests_are_not_closed(self):
    server = await self.start()
    slow = _CLOSE.replace(b'\r\n\r\n', b'\r\nSecs: 2\r\n\r\n')
    held = []
    for i in range(6):
      reader, writer = await self.connect(server, f'127.0.0.{2 + i // 3}')
      writer.write(slow)
      held.append(reader)
    while (
      sum(not c.is_idle for c in server._server.server_state.connections) < 6
    ):
      await asyncio.sleep(0.01)
    got = await self.answer(server, _GET)
    self.assertStartsWith(got.decode(), 'HTTP/1.1 503')
    self.assertIn(b'All 6 connections', got)
    for reader in held:
      self.assertIn(b'200 OK', await asyncio.wait_for(reader.read(), 60))
    self.assertEmpty(server._config.clients)

  async def test_errors_of_accept_are_logged_once(self):
    server = await self.start()
    reader, writer = await self.connect(server)
    writer.write(_GET)
    await reader.readuntil(b'{}')
    waiting = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [socket.socket() for _ in range(50)]
    with self.assertLogs(level='ERROR') as logs:
      for connection in taken:
        connection.setblocking(False)
      files = len(os.listdir('/proc/self/fd'))
      resource.setrlimit(resource.RLIMIT_NOFILE, (files - 1, hard))
      try:
        for connection in taken[:3]:
          try:
            connection.connect(('127.0.0.1', server.port))
          except BlockingIOError:
            waiting.append(connection)
          await asyncio.sleep(1.2)
      finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for connection in taken:
      connection.close()
    self.assertLen(logs.records, 1)
    self.assertIn('Raise the limit of open files', logs.output[0])
    self.assertNotIn('Traceback', logs.output[0])
    # The idle connection made room.
    self.assertEqual(await asyncio.wait_for(reader.read(), 60), b'')
    self.assertIn(b'200 OK', await self.answer(server, _CLOSE))

  def test_connections_stay_below_the_limit_of_files(self):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    self.assertEqual(sockets.most_connections(1000), 1000)
    self.assertGreater(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1000)
    for files, expected in ((1024, 768), (256, 64)):
      with (
        mock.patch.object(resource, 'getrlimit', lambda _: (files, files)),  # pylint: disable=cell-var-from-loop
      ):
        self.assertEqual(sockets.most_connections(1000), expected)

  async def test_clients_that_shut_down_their_side_get_answers(self):
    server = await self.start()
    for secs in (b'0', b'1.2'):
      reader, writer = await self.connect(server)
      writer.write(
        _GET.replace(b'\r\n\r\n', b'\r\nSecs: ' + secs + b'\r\n\r\n')
      )
      writer.write_eof()
      got = await asyncio.wait_for(reader.read(), 60)
      self.assertEndsWith(got, b'{}')
      self.assertEqual(got.count(b' 200 OK'), 1)
    # A client that is gone is noticed.
    reader, writer = await self.connect(server)
    writer.write(_GET.replace(b'\r\n\r\n', b'\r\nSecs: 600\r\n\r\n'))
    while not any(
      not c.is_idle for c in server._server.server_state.connections
    ):
      await asyncio.sleep(0.01)
    writer.close()
    while server._server.server_state.connections:
      await asyncio.sleep(0.01)

  async def test_listener_is_inherited(self):
    with socket.create_server(('127.0.0.1', 0)) as listener:
      first = await self.start(listener.dup())
      await first.stop()
      reader, writer = await asyncio.open_connection(*listener.getsockname())
      writer.write(_CLOSE)
      await self.start(listener.dup())
      self.assertIn(b'200 OK', await asyncio.wait_for(reader.read(), 60))
      writer.close()

  async def test_other_versions_of_http_are_refused(self):
    server = await self.start()
    for version in (b'3.7', b'2.0', b'0.9', b'9.9'):
      got = await self.answer(server, _GET.replace(b'1.1', version))
      self.assertStartsWith(got.decode(), 'HTTP/1.1 505 ')
    got = await self.answer(server, _CLOSE.replace(b'1.1', b'1.0'))
    self.assertIn(b'200 OK', got)

  async def test_ambiguous_requests_are_refused(self):
    server = await self.start()
    both = b'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n'
    for header in (
      b'A: b\n',
      b'A: b\r\n c\r\n',
      b'A: b\r\n\tc\r\n',
      both,
    ):
      request = b'POST /who HTTP/1.1\r\nHost: x\r\n' + header + b'\r\n'
      # The second round sends the request after another one, where it could
      # mislead proxies.
      for before in (b'', _GET):
        got = await self.answer(server, before + request + b'0\r\n\r\n' + _GET)
        *answered, last = got.split(b'HTTP/1.1 ')
        # The 400 is for this request, and not for the "0" after it.
        self.assertLen(answered, 2 if before else 1)
        self.assertStartsWith(last.decode(), '400')
        self.assertIn(b'connection: close', last.lower())
    with self.subTest('good'):
      reader, writer = await self.connect(server)
      writer.write(
        b'POST /who HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n'
        b'2\r\n\n\n\r\n0\r\n\r\n' + _GET
      )
      for _ in range(2):
        self.assertIn(b'200 OK', await reader.readuntil(b'{}'))

  def test_clients_are_grouped_by_address(self):
    for address, expected in (
      ('1.2.3.4', '1.2.3.4'),
      ('::ffff:1.2.3.4', '1.2.3.4'),
      ('2001:db8:1:2:3::4', '2001:db8:1:2::/64'),
      ('fe80::1%eth0', 'fe80::/64'),
      ('', ''),
    ):
      self.assertEqual(web._group(address), expected)

  async def test_taken_port_is_an_error(self):
    with socket.create_server(('127.0.0.1', 0)) as taken:
      with self.assertRaises(OSError):
        await self.make().start(taken.getsockname()[1])


class HttpsTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    asyncio.get_running_loop().set_debug(False)
    self.enterContext(mock.patch.object(tls, 'LOOK_SECS', 0.0))
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    tls.configure(self.certs.server())
    self.addCleanup(tls.configure, None)

  async def answer(
    self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
  ) -> None:
    certificate = writer.get_extra_info('peercert') or {}
    self.names = access.names_in(certificate)
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
    """Connects and returns the serial number of the server's certificate."""
    context = ssl.create_default_context(cafile=self.certs.ca_file)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python 3.13's default.
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
    await self.serve(web.server_context())
    self.assertTrue(web.is_https())
    self.assertNotEmpty(await self.serial())

  async def test_clients_need_certificates_if_required(self):
    await self.serve(web.server_context(ssl.CERT_REQUIRED))
    self.assertNotEmpty(await self.serial(self.certs.make('alice')))
    with self.assertRaises((ssl.SSLError, ConnectionError)):
      await self.serial()

  async def test_names_of_client_certificates_are_known(self):
    await self.serve(web.server_context(ssl.CERT_OPTIONAL))
    await self.serial()
    self.assertEqual(self.names, ())
    await self.serial(self.certs.make('alice', 'spiffe://t/al', 'al.test'))
    self.assertEqual(self.names, ('spiffe://t/al', 'al.test'))

  async def test_running_server_uses_replaced_files(self):
    await self.serve(web.server_context())
    first = await self.serial()
    self.assertEqual(await self.serial(), first)
    self.certs.server()
    second = await self.serial()
    self.assertNotEqual(second, first)
    with open(tls.current().cert_file, 'w', encoding='ascii') as f:
      f.write('broken')
    self.assertEqual(await self.serial(), second)

  async def test_server_without_a_certificate_uses_plain_http(self):
    ca_only = dataclasses.replace(tls.Settings(), ca_file=self.certs.ca_file)
    for settings in (tls.Settings(), ca_only):
      tls.configure(settings)
      self.assertFalse(web.is_https())
      self.assertIsNone(web.server_context())


if __name__ == '__main__':
  absltest.main()
