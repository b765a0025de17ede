"""Tests of servers and channels on an event loop, over gRPC on loopback."""

import asyncio
import unittest

from absl.testing import absltest
import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc

_SERVICE = 'sax.server.lm.LMService'
_TIMEOUT = 120
_Code = grpc.StatusCode
_Health = health_pb2.HealthCheckResponse


class _Servicer(lm_pb2_grpc.LMServiceServicer):
  """A servicer whose Generate sends plain texts and whose Embed wraps them."""

  def __init__(self):
    self.waiting = asyncio.Event()
    self.cancelled = asyncio.Event()

  @grpc_aio.method()
  async def Generate(self, request, context):
    await self._fail(request.text, context)
    return lm_pb2.GenerateResponse()

  @grpc_aio.method(wrap_text=True)
  async def Embed(self, request, context):
    await self._fail(request.text, context)
    return lm_pb2.EmbedResponse()

  @grpc_aio.method()
  async def GenerateStream(self, request, context):
    await context.write(lm_pb2.GenerateStreamResponse())
    raise errors.ResourceExhausted('queue of 4 is full')

  async def _fail(self, text, context):
    if text == 'sax':
      raise errors.NotFound('model m not found')
    if text == 'verbatim':
      raise grpc_aio.Verbatim(_Code.CANCELLED, 'Canceled')
    if text == 'bug':
      raise ValueError('a bug')
    if text == 'abort':
      await context.abort(_Code.ABORTED, 'by hand')
    if text == 'wait':
      self.waiting.set()
      try:
        await asyncio.Event().wait()
      except asyncio.CancelledError:
        self.cancelled.set()
        raise


class GrpcAioTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def asyncSetUp(self):
    # The test case turns on the loop's debug mode, which makes it much slower.
    asyncio.get_running_loop().set_debug(False)
    self.servicer = _Servicer()
    self.server = grpc_aio.make_server()
    lm_pb2_grpc.add_LMServiceServicer_to_server(self.servicer, self.server)
    self.health = grpc_aio.add_reflection_and_health(self.server, [_SERVICE])
    self.port = grpc_util.listen(self.server, 0)
    await self.server.start()
    self.channel = grpc_aio.channel(f'127.0.0.1:{self.port}')
    self.stub = lm_pb2_grpc.LMServiceStub(self.channel)

  async def asyncTearDown(self):
    await self.channel.close()
    await self.server.stop(None)

  async def test_malformed_messages_are_invalid_arguments(self):
    # The length exceeds the end of the message.
    bad = b'\x0a\x7fx'
    for path, open_call in (
      (f'/{_SERVICE}/Generate', self.channel.unary_unary),
      (f'/{_SERVICE}/GenerateStream', self.channel.unary_stream),
      ('/grpc.health.v1.Health/Check', self.channel.unary_unary),
      ('/grpc.health.v1.Health/Watch', self.channel.unary_stream),
    ):
      call = open_call(path)(bad, timeout=_TIMEOUT)
      self.assertEqual(await call.code(), _Code.INVALID_ARGUMENT, path)
      self.assertIn('not a message of its type', await call.details())
    service = reflection_pb2.DESCRIPTOR.services_by_name['ServerReflection']
    call = self.channel.stream_stream(
      f'/{service.full_name}/ServerReflectionInfo'
    )(iter([bad]), timeout=_TIMEOUT)
    self.assertEqual(await call.code(), _Code.INVALID_ARGUMENT)
    # A missing method is reported as missing.
    call = self.channel.unary_unary(f'/{_SERVICE}/Score')(b'', timeout=_TIMEOUT)
    self.assertEqual(await call.code(), _Code.UNIMPLEMENTED)

  async def fail_plain(self, text: str) -> tuple[grpc.StatusCode, str]:
    return await self._status(
      self.stub.Generate(lm_pb2.GenerateRequest(text=text), timeout=_TIMEOUT)
    )

  async def fail_wrapped(self, text: str) -> tuple[grpc.StatusCode, str]:
    return await self._status(
      self.stub.Embed(lm_pb2.EmbedRequest(text=text), timeout=_TIMEOUT)
    )

  async def _status(self, call) -> tuple[grpc.StatusCode, str]:
    with self.assertRaises(grpc.aio.AioRpcError) as caught:
      await call
    return caught.exception.code(), caught.exception.details()

  async def test_errors_become_statuses(self):
    self.assertEqual(
      await self.fail_plain('sax'), (_Code.NOT_FOUND, 'model m not found')
    )
    self.assertEqual(
      await self.fail_plain('verbatim'), (_Code.CANCELLED, 'Canceled')
    )
    self.assertEqual(await self.fail_plain('abort'), (_Code.ABORTED, 'by hand'))

  async def test_wrapped_text(self):
    self.assertEqual(
      await self.fail_wrapped('sax'),
      (
        _Code.NOT_FOUND,
        'model m not found: rpc error: code = NotFound desc = NotFound',
      ),
    )
    self.assertEqual(
      await self.fail_wrapped('verbatim'), (_Code.CANCELLED, 'Canceled')
    )
    self.assertEqual(
      await self.fail_wrapped('abort'), (_Code.ABORTED, 'by hand')
    )

  async def test_bug_is_internal_and_logged(self):
    with self.assertLogs(level='ERROR') as logs:
      self.assertEqual(
        await self.fail_plain('bug'), (_Code.INTERNAL, 'ValueError: a bug')
      )
    self.assertIn('Traceback', '\n'.join(logs.output))

  async def test_stream_fails_after_its_first_message(self):
    stream = self.stub.GenerateStream(
      lm_pb2.GenerateRequest(), timeout=_TIMEOUT
    )
    await stream.read()
    code, text = await self._status(stream.read())
    self.assertEqual(code, _Code.RESOURCE_EXHAUSTED)
    self.assertEqual(text, 'queue of 4 is full')

  async def test_cancelled_call_ends_its_method(self):
    call = self.stub.Generate(lm_pb2.GenerateRequest(text='wait'))
    async with asyncio.timeout(_TIMEOUT):
      await self.servicer.waiting.wait()
      call.cancel()
      await self.servicer.cancelled.wait()

  async def test_taken_port_is_an_error(self):
    with self.assertRaisesRegex(
      errors.FailedPrecondition, f'port {self.port} .*--port'
    ):
      grpc_util.listen(grpc_aio.make_server(), self.port)

  async def test_large_messages_pass(self):
    request = lm_pb2.GenerateRequest(text='a' * (8 * 2**20))
    await self.stub.Generate(request, timeout=_TIMEOUT)

  async def test_burst_of_calls_is_answered_completely(self):
    # gRPC cancels pending calls above 3,000 by default.
    calls = [
      self.stub.Generate(lm_pb2.GenerateRequest(), timeout=_TIMEOUT)
      for _ in range(3500)
    ]
    self.assertLen(await asyncio.gather(*calls), 3500)

  async def test_health(self):
    stub = health_pb2_grpc.HealthStub(self.channel)
    for name in ('', _SERVICE):
      request = health_pb2.HealthCheckRequest(service=name)
      got = await stub.Check(request, timeout=_TIMEOUT)
      self.assertEqual(got.status, _Health.SERVING)
    code, text = await self._status(
      stub.Check(health_pb2.HealthCheckRequest(service='x'), timeout=_TIMEOUT)
    )
    self.assertEqual(code, _Code.NOT_FOUND)
    self.assertRegex(text, f"'x' does not exist. Available: .*{_SERVICE}")

  async def test_stop_notifies_watchers_without_waiting(self):
    stub = health_pb2_grpc.HealthStub(self.channel)
    known, unknown = (
      stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=_TIMEOUT)
      for name in (_SERVICE, 'x')
    )
    self.assertEqual((await known.read()).status, _Health.SERVING)
    self.assertEqual((await unknown.read()).status, _Health.SERVICE_UNKNOWN)
    self.health.stop()
    async with asyncio.timeout(_TIMEOUT / 2):
      await self.server.stop(grace=_TIMEOUT)
    self.assertEqual((await known.read()).status, _Health.NOT_SERVING)
    self.assertEqual((await unknown.read()).status, _Health.SERVICE_UNKNOWN)
    self.assertEqual(await known.code(), _Code.OK)
    self.assertEqual(await unknown.code(), _Code.OK)

  async def test_reflection(self):
    stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services='')
    answers = stub.ServerReflectionInfo(iter([request]), timeout=_TIMEOUT)
    answer = await answers.read()
    names = [item.name for item in answer.list_services_response.service]
    self.assertContainsSubset([_SERVICE, 'grpc.health.v1.Health'], names)


if __name__ == '__main__':
  absltest.main()
