"""Tests the checks of requests and the format of errors."""

import asyncio
import unittest

from absl.testing import absltest
from starlette import types

from saxml_ext.common.telemetry import traced_calls
from saxml_ext.common.telemetry import tracing
from saxml_ext.http.web import bodies
from saxml_ext.http.web import gateway_metrics
from saxml_ext.http.web import guard

_SCOPE = {'type': 'http', 'method': 'GET', 'path': '/x', 'headers': []}


class GuardTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def ask(self, app: types.ASGIApp) -> list[types.Message]:
    """Returns the messages that are sent to the client."""
    sent: list[types.Message] = []

    async def send(message: types.Message) -> None:
      sent.append(message)

    async def receive() -> types.Message:
      return await asyncio.Future()

    self.metrics = gateway_metrics.Metrics()
    await guard.Guard(app, self.metrics, guard.Options())(
      dict(_SCOPE), receive, send
    )
    return sent

  def count(self, code: int) -> float | None:
    labels = {'route': '', 'model_name': '', 'code': str(code)}
    return self.metrics.registry.get_sample_value(
      'sax_gateway_requests_total', labels
    )

  async def test_internal_error_is_answered_and_logged(self):
    async def app(scope, receive, send):
      raise ValueError('some secret')

    with self.assertLogs('absl', 'WARNING') as logs:
      start, body = await self.ask(app)
    self.assertEqual(start['status'], 500)
    self.assertNotIn(b'secret', body['body'])
    self.assertIn('some secret', '\n'.join(logs.output))
    self.assertEqual(self.count(500), 1)

  async def test_error_cuts_off_a_begun_answer(self):
    async def events():
      yield b'data: 1\n\n'
      raise ValueError('oh')

    with self.assertLogs('absl', 'WARNING'):
      sent = await self.ask(bodies.Events(events()))
    kinds = [message['type'] for message in sent]
    self.assertEqual(kinds, ['http.response.start', 'http.response.body'])
    self.assertTrue(sent[-1]['more_body'])

  async def test_requests_left_at_shutdown_are_answered(self):
    begun = asyncio.Event()

    async def app(scope, receive, send):
      begun.set()
      await asyncio.Future()

    async def events():
      yield b'data: 1\n\n'
      begun.set()
      await asyncio.Future()

    for inner, status, text, more in (
      (app, 503, b'the gateway stops', False),
      (bodies.Events(events()), 200, b'data: 1', True),
    ):
      begun.clear()
      task = asyncio.create_task(self.ask(inner))
      await begun.wait()
      task.cancel()
      start, body = await task
      self.assertEqual(start['status'], status)
      self.assertIn(text, body['body'])
      self.assertEqual(body.get('more_body', False), more)
      self.assertEqual(self.count(503), 1)

  async def test_all_requests_are_logged_on_demand(self):
    traced_calls.configure(traced_calls.ALL)
    self.addCleanup(traced_calls.configure, traced_calls.ERRORS)

    async def app(scope, receive, send):
      self.name = tracing.current_id()
      await bodies.json_response({})(scope, receive, send)

    with self.assertLogs('absl', 'INFO') as logs:
      start, _ = await self.ask(app)
    [record] = logs.records
    self.assertEqual(record.fields['code'], 200)
    self.assertEqual(record.fields['request_id'], self.name)
    self.assertIn((b'x-request-id', self.name.encode()), start['headers'])


if __name__ == '__main__':
  absltest.main()
