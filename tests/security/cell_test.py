"""Tests a cell of processes with mutual TLS and lists, through a renewal."""

import os
import socket
import ssl

from absl.testing import absltest
import grpc

from saxml_ext.common import cell as cell_lib
from saxml_ext.common.security import acl_file
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.protobuf import admin_pb2
from tests.chaos import processes

_SERVER = 'tests.chaos.fake_server'
_MODEL = f'{processes.CELL}/m'
_LISTS = '{"acl/admins": ["alice"], "acl/servers": ["spiffe://test/server"]}'


def _environment(settings: tls.Settings) -> dict[str, str]:
  return {
    tls.CERT_VARIABLE: settings.cert_file,
    tls.KEY_VARIABLE: settings.key_file,
    tls.CA_VARIABLE: settings.ca_file,
    tls.NAME_VARIABLE: settings.server_name,
  }


class CellTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    self.server_tls = self.certs.server()
    self.alice = self.certs.make('alice')
    tls.configure(self.alice)
    self.addCleanup(tls.configure, None)
    self.cell = self.enter_context(
      processes.Cell(self.create_tempdir().full_path)
    )
    config = admin_pb2.Config(fs_root=self.cell.fs_root, admin_acl='acl/admins')
    cell_lib.write_config(self.cell.root, processes.CELL, config)
    path = acl_file.path_of(self.cell.root, processes.CELL)
    with open(path, 'w', encoding='ascii') as f:
      f.write(_LISTS)

  def start(self, program: str, own: tls.Settings) -> processes.Process:
    args = ['--http_port=-1'] if program == processes.ADMIN_SERVER else []
    return self.cell.start(program, args, _environment(own))

  def publish(self) -> None:
    self.cell.call(
      'Publish',
      admin_pb2.PublishRequest(
        model=admin_pb2.Model(
          model_id=_MODEL,
          model_path='p.A',
          checkpoint_path='None',
          requested_num_replicas=1,
        )
      ),
    )

  def servers(self) -> int:
    stats = self.cell.call('Stats', admin_pb2.StatsRequest())
    return sum(kind.num_replicas for kind in stats.model_server_type_stats)

  def serial(self, address: str) -> str:
    """Returns the serial number of the certificate of an admin server."""
    context = ssl.create_default_context(cafile=self.alice.ca_file)
    context.load_cert_chain(self.alice.cert_file, self.alice.key_file)
    context.set_alpn_protocols(['h2'])
    host, _, port = address.rpartition(':')
    with socket.create_connection((host, int(port))) as plain:
      with context.wrap_socket(
        plain, server_hostname=cell_certs.SERVER_NAME
      ) as connection:
        return str(connection.getpeercert()['serialNumber'])

  def test_cell_with_tls_survives_renewal_and_a_new_leader(self):
    admin = self.start(processes.ADMIN_SERVER, self.server_tls)
    self.start(_SERVER, self.server_tls)
    self.cell.wait_for_leader()
    self.publish()
    ready = admin_pb2.WaitForReadyRequest(model_id=_MODEL, num_replicas=1)
    self.cell.call(
      'WaitForReady', ready
    )  # The server has joined, and was told to load.

    stranger = self.certs.make('stranger')
    tls.configure(stranger)
    with self.assertRaises(grpc.RpcError) as caught:
      self.publish()
    self.assertIs(caught.exception.code(), grpc.StatusCode.PERMISSION_DENIED)
    tls.configure(self.alice)
    rogue = self.start(_SERVER, stranger)
    processes.wait(lambda: 'PERMISSION_DENIED' in rogue.log.read_text())
    self.assertEqual(self.servers(), 1)
    rogue.kill()

    before = self.serial(admin.address)
    self.certs.server()
    processes.wait(lambda: self.serial(admin.address) != before)
    self.assertEqual(self.servers(), 1)
    admin.kill()
    self.start(processes.ADMIN_SERVER, self.server_tls)
    self.cell.wait_for_leader(but=[admin.address])
    # Both ends of the connection use certificates that are newer than its
    # programs.
    processes.wait(lambda: self.servers() == 1)

  def test_incomplete_setup_ends_the_program(self):
    half = tls.Settings(cert_file=self.server_tls.cert_file)
    with self.assertRaisesRegex(RuntimeError, 'needs --tls_key_file'):
      self.start(processes.ADMIN_SERVER, half)
    with self.assertRaisesRegex(RuntimeError, 'certificate of old expired at'):
      self.start(processes.ADMIN_SERVER, self.certs.make('old', days=-1))
    self.assertFalse(
      os.path.exists(f'{self.cell.root}/sax/test/location.proto')
    )


if __name__ == '__main__':
  absltest.main()
