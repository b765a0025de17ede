"""Defines the base class for tests of a gateway over a test cell."""

from collections.abc import Mapping
import json
import os
from typing import Any
import urllib.error
import urllib.request

from absl.testing import absltest
import openai

from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import net
from saxml_ext.http.testing import fake_completion
from saxml_ext.http.testing import gateway_fixture
from saxml_ext.http.web import guard

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class GatewayCase(absltest.TestCase):
  """The base of tests that share a cell, a Completion service and a gateway."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    os.environ[net.LOOPBACK_VARIABLE] = '1'
    directory = absltest.get_default_test_tmpdir()
    cls.cell = fake_cell.FakeCell(os.path.join(directory, cls.__name__))
    cls.addClassCleanup(cls.cell.stop)
    sax.SetRoot(cls.cell.root)
    cls.server = fake_completion.FakeCompletion()
    cls.addClassCleanup(cls.server.stop)
    cls.cell.admin.add_address(fake_cell.MODEL, cls.server.address)
    cls.gateway = cls.start_gateway()

  @classmethod
  def start_gateway(
    cls, aliases: Mapping[str, str] | None = None, **options: Any
  ) -> gateway_fixture.GatewayFixture:
    gateway = gateway_fixture.GatewayFixture(
      fake_cell.CELL, guard.Options(**options), aliases or {}
    )
    cls.addClassCleanup(gateway.stop)
    return gateway

  def setUp(self):
    super().setUp()
    self.server.requests.clear()
    self.server.cancelled.clear()
    self.server.running.clear()

  def client(self, gateway=None, **options: Any) -> openai.OpenAI:
    options = {'api_key': 'none', 'max_retries': 0, 'timeout': 60} | options
    client = openai.OpenAI(
      base_url=(gateway or self.gateway).address + '/v1', **options
    )
    self.addCleanup(client.close)
    return client

  def fetch(
    self, path: str, body: Any = None, gateway=None, **headers: str
  ) -> tuple[int, Any, dict[str, str]]:
    """Sends a request without the openai package.

    Returns:
      The status, the answer (parsed if it is JSON) and the headers.
    """
    if body is not None:
      headers.setdefault('Content-Type', 'application/json')
      if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    request = urllib.request.Request(
      (gateway or self.gateway).address + path, body, headers
    )
    try:
      with _OPENER.open(request, timeout=60) as response:
        status, data = response.status, response.read()
        fields = response.headers
    except urllib.error.HTTPError as e:
      with e:
        status, data, fields = e.code, e.read(), e.headers
    names = {k.lower(): v for k, v in fields.items()}
    if 'json' in names.get('content-type', ''):
      return status, json.loads(data), names
    return status, data.decode(), names
