"""Tests for caller: which names are verified, by real certificates."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.common import errors
from saxml_ext.common import grpc_util
from saxml_ext.common.security import caller
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.common.testing import threaded_server

_METHOD = '/test.Test/Who'


def _who(request: bytes, context: grpc.ServicerContext) -> bytes:
  del request
  texts = (','.join(caller.names(context)), caller.name(context))
  return '|'.join((*texts, caller.client(context))).encode()


class CallerTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    self.addCleanup(tls.configure, None)
    self.addCleanup(caller.trust, ())
    self.address = self.serve(self.certs.server())

  def serve(self, settings: tls.Settings) -> str:
    tls.configure(settings)
    server = threaded_server.make_server(2)
    handler = grpc.unary_unary_rpc_method_handler(_who)
    server.add_generic_rpc_handlers(
      (grpc.method_handlers_generic_handler('test.Test', {'Who': handler}),)
    )
    address = f'127.0.0.1:{grpc_util.listen(server, 0, "127.0.0.1")}'
    server.start()
    self.addCleanup(server.stop, None)
    return address

  def ask(self, settings: tls.Settings, *metadata: tuple[str, str]) -> str:
    tls.configure(settings)
    with grpc_util.channel(self.address) as channel:
      call = channel.unary_unary(_METHOD)
      return call(b'', metadata=metadata, timeout=60).decode()

  def test_subject_alternative_names_count(self):
    alice = self.certs.make('alice', 'al.test', 'a@b.test', 'spiffe://t/al')
    self.assertEqual(
      self.ask(alice),
      'spiffe://t/al,al.test,a@b.test|spiffe://t/al|spiffe://t/al',
    )

  def test_else_the_common_name(self):
    # An address is the only alternative name, and no name of a caller.
    self.assertEqual(
      self.ask(self.certs.make('ip', '10.0.0.1')),
      '10.0.0.1|10.0.0.1|10.0.0.1',
    )

  def test_without_a_certificate_nobody_is_known(self):
    server = dataclasses.replace(
      self.certs.server(), require_client_certs=False
    )
    self.address = self.serve(server)
    client = tls.Settings(
      ca_file=self.certs.ca_file, server_name=cell_certs.SERVER_NAME
    )
    self.assertEqual(self.ask(client), '||127.0.0.1')
    self.address = self.serve(tls.Settings())
    claim = (caller.METADATA_KEY, 'alice')
    self.assertEqual(self.ask(tls.Settings()), '||127.0.0.1')
    self.assertEqual(self.ask(tls.Settings(), claim), '||127.0.0.1')

  def test_trusted_proxies_speak_for_others(self):
    gateway = self.certs.make('gateway', 'gateway.test')
    claim = (caller.METADATA_KEY, 'alice')
    # Not even as itself: it would lend its rights to its users.
    self.assertEqual(self.ask(gateway, claim), '||127.0.0.1')
    caller.trust(['gateway.test'])
    self.assertEqual(self.ask(gateway, claim), 'alice|alice|alice')
    self.assertEqual(
      self.ask(gateway), 'gateway.test|gateway.test|gateway.test'
    )
    for claims in (
      [(caller.METADATA_KEY, '')],
      [(caller.METADATA_KEY, 'a b')],
      [(caller.METADATA_KEY, 'x' * 257)],
      [claim, (caller.METADATA_KEY, 'bob')],
    ):
      self.assertEqual(self.ask(gateway, *claims), '||127.0.0.1')

  def test_names_of_a_certificate_shown_to_a_port_of_http(self):
    subject = ((('commonName', 'al'),),)
    self.assertEqual(caller.names_in({'subject': subject}), ('al',))
    alternative = (
      ('email', 'a@b.test'),
      ('DNS', 'al.test'),
      ('IP Address', '10.0.0.1'),
      ('URI', 'spiffe://t/al'),
    )
    self.assertEqual(
      caller.names_in({'subject': subject, 'subjectAltName': alternative}),
      ('spiffe://t/al', 'al.test', 'a@b.test'),
    )
    self.assertEqual(caller.names_in({}), ())

  def test_names_have_to_be_plain(self):
    caller.check_name('spiffe://test/a-b_c.d@e')
    for name in ('', 'a b', 'é', 'a\n', 'x' * 257):
      with self.assertRaises(errors.InvalidArgument):
        caller.check_name(name)


if __name__ == '__main__':
  absltest.main()
