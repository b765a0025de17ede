"""Tests of the records of calls, over gRPC on loopback."""

import asyncio
import json
import logging
import unittest

from absl.testing import absltest
import grpc
import prometheus_client

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common.telemetry import log_format
from saxml_ext.common.telemetry import traced_calls
from saxml_ext.common.telemetry import tracing
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc

_MODEL = '/sax/test/m'
_TIMEOUT = 120


class _Servicer(lm_pb2_grpc.LMServiceServicer):
  def __init__(self):
    self.ids: list[str] = []

  @grpc_aio.method()
  async def Generate(self, request, context):
    self.ids.append(tracing.current_id())
    context.set_trailing_metadata((('query_cost_v0', '1'),))
    if request.text:
      error = errors.ResourceExhausted(request.text, retry_after=0.5)
      raise errors.Internal('bad') if request.text == 'bad' else error
    return lm_pb2.GenerateResponse()

  @grpc_aio.method()
  async def Score(self, request, context):
    await context.abort(grpc.StatusCode.ABORTED, 'by hand')


def _handled(method: str, code: str) -> float:
  labels = {
    'grpc_service': 'sax.server.lm.LMService',
    'grpc_method': method,
    'grpc_code': code,
  }
  registry = prometheus_client.REGISTRY
  return registry.get_sample_value('grpc_server_handled_total', labels) or 0.0


class CallsTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    asyncio.get_running_loop().set_debug(False)
    self.servicer = _Servicer()
    self.server = grpc_aio.make_server()
    lm_pb2_grpc.add_LMServiceServicer_to_server(self.servicer, self.server)
    port = grpc_util.listen(self.server, 0)
    await self.server.start()
    self.channel = grpc_aio.channel(f'127.0.0.1:{port}')
    self.stub = lm_pb2_grpc.LMServiceStub(self.channel)
    self.addCleanup(traced_calls.configure, traced_calls.ERRORS)

  async def asyncTearDown(self):
    await self.channel.close()
    await self.server.stop(None)

  async def generate(self, text: str = '', given: str = '') -> dict:
    """Calls Generate, and returns the trailing metadata of the response."""
    metadata = [(tracing.REQUEST_ID, given)] if given else None
    request = lm_pb2.GenerateRequest(model_key=_MODEL, text=text)
    call = self.stub.Generate(request, metadata=metadata, timeout=_TIMEOUT)
    try:
      await call
    except grpc.aio.AioRpcError:
      pass  # Its metadata is checked as well.
    return dict(await call.trailing_metadata())

  async def test_request_id_is_returned(self):
    metadata = await self.generate(given='mine')
    self.assertEqual(metadata[tracing.REQUEST_ID], 'mine')
    self.assertEqual(metadata['query_cost_v0'], '1')
    made = (await self.generate())[tracing.REQUEST_ID]
    self.assertEqual(self.servicer.ids, ['mine', made])
    metadata = await self.generate('full', given='mine')
    self.assertEqual(metadata[tracing.REQUEST_ID], 'mine')
    self.assertEqual(metadata['grpc-retry-pushback-ms'], '500')

  async def test_calls_are_counted_by_status(self):
    codes = ('OK', 'RESOURCE_EXHAUSTED')
    before = [_handled('Generate', code) for code in codes]
    aborted = _handled('Score', 'ABORTED')
    await self.generate()
    await self.generate('full')
    await self.generate('full')
    with self.assertRaises(grpc.aio.AioRpcError):
      await self.stub.Score(lm_pb2.ScoreRequest(), timeout=_TIMEOUT)
    # A call may be counted after the client has its status.
    await self.server.stop(None)
    after = [_handled('Generate', code) for code in codes]
    self.assertEqual([a - b for a, b in zip(after, before)], [1, 2])
    self.assertEqual(_handled('Score', 'ABORTED'), aborted + 1)

  async def test_configured_calls_are_logged(self):
    with self.assertLogs('absl', logging.INFO) as logged:
      await self.generate('bad', given='mine')
      await self.generate('full')
      traced_calls.configure(traced_calls.ALL)
      await self.generate(given='other')
      traced_calls.configure(traced_calls.NONE)
      await self.generate('full')
    self.assertLen(logged.records, 2)
    line = json.loads(log_format.JsonFormatter().format(logged.records[0]))
    self.assertEqual(line['severity'], 'WARNING')
    self.assertEqual(line['method'], 'sax.server.lm.LMService/Generate')
    self.assertEqual(line['model'], _MODEL)
    self.assertEqual(line['code'], 'INTERNAL')
    self.assertEqual(line['request_id'], 'mine')
    self.assertGreaterEqual(line['seconds'], 0)
    self.assertRegex(line['caller'], '^ipv[46]:')
    self.assertIn('bad', line['message'])
    line = json.loads(log_format.JsonFormatter().format(logged.records[1]))
    self.assertEqual((line['severity'], line['code']), ('INFO', 'OK'))
    self.assertEqual(line['request_id'], 'other')


if __name__ == '__main__':
  absltest.main()
