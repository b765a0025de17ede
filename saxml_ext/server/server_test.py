"""Tests for the program: its flags, its joining and its end."""

from concurrent import futures
import os
import queue
import signal
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.common import cell
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

_CELL = '/sax/test'
_TIMEOUT = 120


class _Admin(admin_pb2_grpc.AdminServicer):

  def __init__(self):
    self.joins = queue.Queue()

  def Join(self, request, context):
    self.joins.put(request)
    return admin_pb2.JoinResponse()


class ServerTest(parameterized.TestCase):

  def _start(self, *flags: str) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, '-m', 'saxml_ext.server.server', *flags],
        env={
            **os.environ,
            'PYTHONPATH': os.pathsep.join(filter(None, sys.path)),
            'SAX_DEBUG_IPADDR': '1',
            'JAX_PLATFORMS': 'cpu',
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    self.addCleanup(process.communicate)
    self.addCleanup(process.kill)
    return process

  def test_joins_serves_and_ends_when_told(self):
    admin = _Admin()
    admin_server = grpc.server(futures.ThreadPoolExecutor(2))
    admin_pb2_grpc.add_AdminServicer_to_server(admin, admin_server)
    port = admin_server.add_insecure_port('127.0.0.1:0')
    admin_server.start()
    self.addCleanup(lambda: admin_server.stop(None).wait())
    root = self.create_tempdir().full_path
    cell.write_location(
        root, _CELL, admin_pb2.Location(location=f'127.0.0.1:{port}')
    )

    process = self._start(
        '--port=0',
        f'--sax_root={root}',
        f'--sax_cell={_CELL}',
        '--platform_chip=tpuv5e',
        '--platform_topology=2x2',
        '--tags=blue,red',
        r'--model_filter_regex=.*\.gptj\.GPTJ4.*',
    )
    line = process.stdout.readline()
    self.assertRegex(line, r'^Model server is serving at 127.0.0.1:\d+$')
    join = admin.joins.get(timeout=_TIMEOUT)
    self.assertIn(join.address, line)
    spec = join.model_server
    self.assertEqual(spec.chip_type, spec.CHIP_TYPE_TPU_V5E)
    self.assertEqual(spec.chip_topology, spec.CHIP_TOPOLOGY_2X2)
    self.assertEqual(list(spec.tags), ['blue', 'red'])
    prefix = 'saxml.server.pax.lm.params.gptj.GPTJ4'
    self.assertIn(prefix + 'TokenizedBF16BS32', spec.servable_model_paths)
    for path in spec.servable_model_paths:
      self.assertStartsWith(path, prefix)

    with grpc.insecure_channel(join.address) as channel:
      status = modelet_pb2_grpc.ModeletStub(channel).GetStatus(
          modelet_pb2.GetStatusRequest(), timeout=_TIMEOUT
      )
    self.assertEmpty(status.models)
    process.send_signal(signal.SIGTERM)
    self.assertEqual(process.wait(_TIMEOUT), 0)

  @parameterized.parameters(
      (['--models=a.B'], '--models, --model_keys and --checkpoints have 1, 0'),
      (['--platform_topology=3x3'], '--platform_topology=3x3 is not one of'),
      (['--model_filter_regex=('], r'--model_filter_regex=\( is no regular'),
      (['--sax_cell=test', '--sax_root=/tmp'], 'test'),
  )
  def test_bad_flags(self, flags, message):
    process = self._start('--port=0', *flags)
    _, stderr = process.communicate(timeout=_TIMEOUT)
    self.assertEqual(process.returncode, 1, stderr)
    self.assertRegex(stderr, 'server: .*' + message)
    self.assertNotIn('Traceback', stderr)

  def test_static_model_that_does_not_load(self):
    process = self._start(
        '--port=0',
        '--models=saxml_ext.params.gptj.TinyTokenizedFP32',
        '--model_keys=/sax/test/m',
        '--checkpoints=/no/such/dir',
    )
    _, stderr = process.communicate(timeout=_TIMEOUT)
    self.assertEqual(process.returncode, 1, stderr)
    self.assertIn("server: checkpoint '/no/such/dir' is no dir", stderr)


if __name__ == '__main__':
  absltest.main()
