"""Tests of the threaded server and channels over real gRPC on loopback."""

import socket

from absl.testing import absltest
import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_util
from saxml_ext.common.testing import threaded_server
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import lm_pb2_grpc

_TIMEOUT = 120


class _Servicer(lm_pb2_grpc.LMServiceServicer):
  def Generate(self, request, context):
    if request.text == 'sax':
      raise errors.NotFound('model m not found')
    if request.text == 'bug':
      raise ValueError('a bug')
    if request.text == 'abort':
      context.abort(grpc.StatusCode.ABORTED, 'by hand')
    return lm_pb2.GenerateResponse()

  def GenerateStream(self, request, context):
    yield lm_pb2.GenerateStreamResponse()
    raise errors.ResourceExhausted('queue of 4 is full')


class GrpcUtilTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.server, self.port = self.start(wrap_text=False)
    self.channel = grpc_util.channel(f'127.0.0.1:{self.port}')
    self.addCleanup(self.channel.close)
    self.stub = lm_pb2_grpc.LMServiceStub(self.channel)

  def start(self, wrap_text: bool) -> tuple[grpc.Server, int]:
    server = threaded_server.make_server(4, wrap_text)
    lm_pb2_grpc.add_LMServiceServicer_to_server(_Servicer(), server)
    port = grpc_util.listen(server, 0)
    server.start()
    self.addCleanup(server.stop, None)
    return server, port

  def fail(self, text: str) -> tuple[grpc.StatusCode, str]:
    with self.assertRaises(grpc.RpcError) as caught:
      self.stub.Generate(lm_pb2.GenerateRequest(text=text), timeout=_TIMEOUT)
    return caught.exception.code(), caught.exception.details()

  def test_errors_become_statuses(self):
    self.assertEqual(
      self.fail('sax'), (grpc.StatusCode.NOT_FOUND, 'model m not found')
    )
    self.assertEqual(self.fail('abort'), (grpc.StatusCode.ABORTED, 'by hand'))

  def test_bug_is_internal_and_logged(self):
    with self.assertLogs(level='ERROR') as logs:
      self.assertEqual(
        self.fail('bug'), (grpc.StatusCode.INTERNAL, 'ValueError: a bug')
      )
    self.assertIn('Traceback', '\n'.join(logs.output))

  def test_stream_fails_after_its_first_message(self):
    stream = self.stub.GenerateStream(
      lm_pb2.GenerateRequest(), timeout=_TIMEOUT
    )
    next(stream)
    with self.assertRaises(grpc.RpcError) as caught:
      next(stream)
    self.assertEqual(
      caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED
    )

  def test_long_text_is_cut_and_keeps_its_code(self):
    code, text = grpc_util.status_of(errors.NotFound('a' * 100_000), True)
    self.assertIs(code, grpc.StatusCode.NOT_FOUND)
    self.assertLess(len(text), 5000)
    self.assertEndsWith(text, 'rpc error: code = NotFound desc = NotFound')

  def test_wrapped_text(self):
    _, port = self.start(wrap_text=True)
    with grpc_util.channel(f'127.0.0.1:{port}') as channel:
      self.stub = lm_pb2_grpc.LMServiceStub(channel)
      self.assertEqual(
        self.fail('sax')[1],
        'model m not found: rpc error: code = NotFound desc = NotFound',
      )

  def test_taken_port_is_an_error(self):
    other = threaded_server.make_server(1)
    with self.assertRaisesRegex(
      errors.FailedPrecondition, f'port {self.port} .*--port'
    ):
      grpc_util.listen(other, self.port)

  def test_port_used_at_another_address_is_an_error(self):
    with socket.create_server(('127.0.0.1', 0)) as taken:
      port = taken.getsockname()[1]
      for host in ('[::]', '0.0.0.0', '127.0.0.1'):
        with self.assertRaisesRegex(
          errors.FailedPrecondition, f'port {port} .*another process'
        ):
          grpc_util.listen(threaded_server.make_server(1), port, host)
    # The port is free again, although connections to it may still be closing.
    server = threaded_server.make_server(1)
    self.addCleanup(server.stop, None)
    self.assertEqual(grpc_util.listen(server, port), port)

  def test_large_messages_pass(self):
    request = lm_pb2.GenerateRequest(text='a' * (8 * 2**20))
    self.stub.Generate(request, timeout=_TIMEOUT)


if __name__ == '__main__':
  absltest.main()
