"""Tests of the program: its flags, its join and its end."""

from concurrent import futures
import queue
import signal
import socket
import subprocess

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.common import cell
from saxml_ext.common.testing import modules
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

_CELL = '/sax/test'
_TIMEOUT = 600


class _Admin(admin_pb2_grpc.AdminServicer):
  def __init__(self):
    self.joins = queue.Queue()

  def Join(self, request, context):
    self.joins.put(request)
    return admin_pb2.JoinResponse()


class ServerTest(parameterized.TestCase):
  def _start(self, *flags: str, **variables: str) -> subprocess.Popen:
    return modules.start(self, 'saxml_ext.server.server', *flags, **variables)

  def test_server_joins_serves_and_ends_on_a_signal(self):
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
    # Another program cannot listen here while this socket has the address.
    elsewhere = self.enter_context(socket.socket())
    elsewhere.bind(('127.0.0.1', 0))

    process = self._start(
      f'--port={elsewhere.getsockname()[1]}',
      '--platform_chip=v5e-4',
      '--platform_topology=2x2x1',
      '--tags=blue,red',
      r'--model_filter_regex=.*\.gptj\.GPTJ4.*',
      '--host=127.0.0.2',
      SAX_ROOT=root,
      SAX_CELL=_CELL,
    )
    line = process.stdout.readline()
    self.assertRegex(line, r'^Model server is serving at 127.0.0.2:\d+$')
    with self.assertRaises(ConnectionRefusedError):
      socket.create_connection(elsewhere.getsockname(), _TIMEOUT)
    join = admin.joins.get(timeout=_TIMEOUT)
    self.assertIn(join.address, line)
    spec = join.model_server
    self.assertEqual(spec.chip_type, spec.CHIP_TYPE_TPU_V5E)
    self.assertEqual(spec.chip_topology, spec.CHIP_TOPOLOGY_2X2X1)
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
    joins = [admin.joins.get(timeout=_TIMEOUT)]
    while not admin.joins.empty():
      joins.append(admin.joins.get())
    self.assertEqual(joins[-1].leaving, 'it was asked to stop')

  @parameterized.parameters(
    (['--models=a.B'], '--models, --model_keys and --checkpoints have 1, 0'),
    (
      ['--sax_cell=/sax/test', '--sax_root=/tmp', '--platform_topology=3x3'],
      '--platform_topology=3x3 is not known',
    ),
    (
      ['--sax_cell=/sax/test', '--sax_root=/tmp', '--model_filter_regex=('],
      r'--model_filter_regex=\( is not a valid regular',
    ),
    (['--tags=a'], '--tags=a has no effect. It acts only in a cell'),
    (['--sax_cell=test', '--sax_root=/tmp'], 'test'),
    (['--num_processes=2'], 'needs --coordinator_address and --process_id'),
  )
  def test_invalid_flags_are_refused(self, flags, message):
    stderr = self._message('--port=0', *flags)
    self.assertRegex(stderr, 'server: .*' + message)

  def test_platforms_missing_in_jax_are_refused(self):
    process = self._start('--port=0', JAX_PLATFORMS='abacus')
    stderr = process.communicate(timeout=_TIMEOUT)[1]
    self.assertEqual(process.returncode, 1)
    self.assertIn('server: JAX_PLATFORMS=abacus cannot be used', stderr)
    self.assertNotIn('Traceback', stderr)

  def _message(self, *flags: str) -> str:
    """Returns the error output of the program, which must end with 1."""
    process = self._start(*flags)
    _, stderr = process.communicate(timeout=_TIMEOUT)
    self.assertEqual(process.returncode, 1, stderr)
    self.assertNotIn('Traceback', stderr)
    self.assertNotIn('RuntimeWarning', stderr)
    return stderr

  def test_static_model_that_fails_to_load_ends_the_server(self):
    for path, message in (
      (
        'saxml_ext.params.gptj.TinyTokenizedFP32',
        "server: checkpoint '/no/such/dir' is not a dir",
      ),
      ('a.b', "server: no serving params are named 'a.b'"),
    ):
      stderr = self._message(
        '--port=0',
        '--sax_cell=',
        f'--models={path}',
        '--model_keys=/sax/test/m',
        '--checkpoints=/no/such/dir',
      )
      self.assertIn(message, stderr)

  def test_taken_port_is_reported_in_one_line(self):
    with socket.create_server(('127.0.0.1', 0)) as other:
      port = other.getsockname()[1]
      stderr = self._message(f'--port={port}')
    self.assertRegex(stderr, rf'^server: port {port} is in use by .*--port\n$')

  def test_filter_without_a_match_is_reported(self):
    root = self.create_tempdir().full_path
    config = admin_pb2.Config(fs_root=root, admin_acl='acl/all')
    cell.write_config(root, _CELL, config)
    process = self._start(
      '--port=0',
      '--model_filter_regex=GPTJ4.*',
      SAX_ROOT=root,
      SAX_CELL=_CELL,
    )
    line = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=_TIMEOUT)
    self.assertIn('is serving', line)
    self.assertIn('Anyone who can reach this server can publish', stderr)
    self.assertRegex(
      stderr,
      r'--model_filter_regex=GPTJ4\.\* matches none of the \d+ model paths',
    )


if __name__ == '__main__':
  absltest.main()
