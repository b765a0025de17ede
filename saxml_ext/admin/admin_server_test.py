"""Tests of the admin server as a process."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

from absl.testing import absltest
import grpc

from saxml_ext.admin import admin_server
from saxml_ext.common import cell
from saxml_ext.common import net
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_CELL = '/sax/test'
_MODEL = admin_pb2.Model(
  model_id=_CELL + '/m', model_path='p.A', checkpoint_path='None'
)


class AdminServerTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.fs_root = self.create_tempdir().full_path
    config = admin_pb2.Config(fs_root=self.fs_root, admin_acl='acl/all')
    cell.write_config(self.root, _CELL, config)

  def start(self, *args: str, **variables: str) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith('SAX_')}
    env.update(variables)
    env['PYTHONPATH'] = os.pathsep.join(sys.path)
    env[net.LOOPBACK_VARIABLE] = '1'
    process = subprocess.Popen(
      [
        sys.executable,
        admin_server.__file__,
        f'--sax_root={self.root}',
        *args,
      ],
      env=env,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    self.addCleanup(process.communicate)
    self.addCleanup(process.kill)
    return process

  def serving(self) -> tuple[subprocess.Popen[str], admin_pb2_grpc.AdminStub]:
    process = self.start(f'--sax_cell={_CELL}', '--port=0', '--http_port=-1')
    self.assertIn('is serving at 127.0.0.1:', process.stdout.readline())
    address = cell.read_location(self.root, _CELL).location
    channel = grpc.insecure_channel(address)
    self.addCleanup(channel.close)
    return process, admin_pb2_grpc.AdminStub(channel)

  def test_environment_sets_flags(self):
    port = net.pick_free_port()
    process = self.start(
      '--http_port=-1', SAX_CELL=_CELL, SAX_ADMIN_SERVER_PORT=str(port)
    )
    self.assertIn(f'is serving at 127.0.0.1:{port}', process.stdout.readline())

  def test_listens_on_the_given_host_only(self):
    # Another program cannot listen here while this socket has the address.
    elsewhere = self.enter_context(socket.socket())
    elsewhere.bind(('127.0.0.1', 0))
    port = elsewhere.getsockname()[1]
    process = self.start(
      f'--sax_cell={_CELL}',
      f'--port={port}',
      '--http_port=-1',
      '--host=127.0.0.2',
    )
    address = process.stdout.readline().split()[-1]
    self.assertEqual(address, f'127.0.0.2:{port}')
    self.assertEqual(cell.read_location(self.root, _CELL).location, address)
    socket.create_connection(('127.0.0.2', port), 60).close()
    with self.assertRaises(ConnectionRefusedError):
      socket.create_connection(('127.0.0.1', port), 60)
    process.terminate()
    _, stderr = process.communicate(timeout=120)
    self.assertNotIn('Anyone who can reach', stderr)

  def test_warns_that_anyone_on_the_network_may_publish(self):
    process, _ = self.serving()
    process.terminate()
    _, stderr = process.communicate(timeout=120)
    self.assertRegex(stderr, 'Anyone who can reach .* --host=127.0.0.1, or see')

  def test_help_names_the_environment(self):
    text, _ = self.start('--help').communicate(timeout=120)
    for variable in ('$SAX_ROOT', '$SAX_CELL', '$SAX_ADMIN_SERVER_PORT'):
      self.assertIn(variable, text)

  def test_killed_server_loses_no_acknowledged_change(self):
    process, stub = self.serving()
    stub.Publish(admin_pb2.PublishRequest(model=_MODEL), timeout=120)
    process.kill()
    _, stub = self.serving()
    response = stub.List(admin_pb2.ListRequest(), timeout=120)
    self.assertEqual(response.published_models[0].model, _MODEL)

  def test_refuses_to_start_without_a_good_copy(self):
    process, stub = self.serving()
    stub.Publish(admin_pb2.PublishRequest(model=_MODEL), timeout=120)
    process.kill()
    directory = pathlib.Path(cell.cell_dir(self.fs_root, _CELL))
    for name in ('state.proto', 'state.proto.prev'):
      (directory / name).write_bytes(b'\xff')
    process = self.start(f'--sax_cell={_CELL}', '--port=0', '--http_port=-1')
    stdout, stderr = process.communicate(timeout=120)
    self.assertEqual(process.returncode, 1, stderr)
    self.assertNotIn('is serving', stdout)
    self.assertRegex(stderr, 'admin_server: .* are both damaged .* backup')
    self.assertNotIn('Traceback', stderr)
    self.assertEqual((directory / 'state.proto').read_bytes(), b'\xff')

  def test_damaged_file_after_a_kill_loses_no_change(self):
    process, stub = self.serving()
    stub.Publish(admin_pb2.PublishRequest(model=_MODEL), timeout=120)
    process.kill()
    directory = pathlib.Path(cell.cell_dir(self.fs_root, _CELL))
    (directory / 'state.proto').write_bytes(b'\xff')
    _, stub = self.serving()
    response = stub.List(admin_pb2.ListRequest(), timeout=120)
    self.assertEqual(response.published_models[0].model, _MODEL)

  def test_signal_stops_server_with_open_calls(self):
    for number in (signal.SIGTERM, signal.SIGINT):
      process, stub = self.serving()
      try:
        stub.Publish(admin_pb2.PublishRequest(model=_MODEL), timeout=120)
      except grpc.RpcError as e:
        self.assertEqual(e.code(), grpc.StatusCode.ALREADY_EXISTS)
      watching = stub.WatchLoc.future(
        admin_pb2.WatchLocRequest(model_id=_MODEL.model_id)
      )
      stub.List(admin_pb2.ListRequest(), timeout=120)
      process.send_signal(number)
      self.assertEqual(process.wait(120), 0)
      self.assertIsNotNone(watching.exception())

  def test_errors_are_one_line(self):
    for args, message in (
      ([], 'set --sax_cell'),
      (
        ['--port=0', '--sax_cell=test'],
        'cell full name "test" should have the form',
      ),
      (['--port=0', '--sax_cell=/sax/other'], 'is not a directory'),
      ([f'--sax_cell={_CELL}'], 'SAX_ADMIN_SERVER_PORT="x" is not a port'),
    ):
      process = self.start(*args, SAX_ADMIN_SERVER_PORT='x')
      _, stderr = process.communicate(timeout=120)
      self.assertEqual(process.returncode, 1)
      self.assertIn(message, stderr)
      self.assertNotIn('Traceback', stderr)


if __name__ == '__main__':
  absltest.main()
