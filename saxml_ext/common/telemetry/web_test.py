"""Tests of the HTTP server within a program."""

import asyncio
import signal
import socket
import unittest
import urllib.request

from absl.testing import absltest
from starlette import applications
from starlette import requests
from starlette import responses
from starlette import routing

from saxml_ext.common.telemetry import web

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


async def _who(request: requests.Request) -> responses.Response:
  return responses.JSONResponse(request.state.peer_certificate)


class WebServerTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def make(self) -> web.WebServer:
    app = applications.Starlette(routes=[routing.Route('/who', _who)])
    return web.WebServer(app)

  async def get(self, server: web.WebServer, host: str) -> str:
    def fetch() -> str:
      url = f'http://{host}:{server.port}/who'
      with _OPENER.open(url, timeout=120) as response:
        return response.read().decode()

    return await asyncio.to_thread(fetch)

  async def test_serves_beside_other_work(self):
    before = signal.getsignal(signal.SIGTERM)
    server = self.make()
    await server.start(0)
    self.assertEqual(await self.get(server, '127.0.0.1'), '{}')
    self.assertIs(signal.getsignal(signal.SIGTERM), before)
    await server.stop()
    with self.assertRaises(OSError):
      await self.get(server, '127.0.0.1')

  async def test_every_interface(self):
    server = self.make()
    await server.start(0, '')
    self.assertEqual(await self.get(server, '127.0.0.1'), '{}')
    await server.stop()

  async def test_taken_port(self):
    with socket.create_server(('127.0.0.1', 0)) as taken:
      with self.assertRaises(OSError):
        await self.make().start(taken.getsockname()[1])


if __name__ == '__main__':
  absltest.main()
