"""Tests of access checks while files are created, damaged and changed."""

import dataclasses
import os

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common import grpc_util
from saxml_ext.common.security import access
from saxml_ext.common.security import acl_file
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.common.testing import threaded_server
from saxml_ext.protobuf import admin_pb2

_CELL = '/sax/test'


_ALICE, _BOB, _UNKNOWN = ('alice',), ('robert', 'bob'), ()
_Names = tuple[str, ...]


class AccessTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.set_admin('acl/all')
    self.path = acl_file.path_of(self.root, _CELL)
    self.access = access.Access.from_cell(self.root, _CELL)

  def set_admin(self, name: str) -> None:
    cell.write_config(
      self.root, _CELL, admin_pb2.Config(fs_root='/f', admin_acl=name)
    )

  def write(self, text: str) -> None:
    with open(self.path, 'w', encoding='ascii') as f:
      f.write(text)
    self.access.refresh()

  def may(self, names: _Names, name: str) -> bool:
    try:
      self.access.check(names, name, 'it')
    except errors.PermissionDenied:
      return False
    return True

  def denied(self, names: _Names, name: str) -> str:
    with self.assertRaises(errors.PermissionDenied) as caught:
      self.access.check(names, name, 'lm.score of m')
    return caught.exception.message

  def test_all_is_the_only_acl_if_there_is_no_file(self):
    self.assertTrue(self.may(_UNKNOWN, ''))
    self.assertTrue(self.may(_UNKNOWN, 'acl/all'))
    self.assertIn('the cell has no lists', self.denied(_ALICE, 'acl/a'))
    with self.assertRaisesRegex(errors.Unimplemented, 'ACL check is not'):
      self.access.check_name('acl/a')

  def test_members_are_allowed(self):
    self.write('{"acl/a": ["alice"]}')
    self.assertTrue(self.may(_ALICE, 'acl/a'))
    self.assertEqual(
      self.denied(_BOB, 'acl/a'),
      "lm.score of m requires membership in 'acl/a', and robert alias bob is"
      " not on that list. The cell's admins can add the name",
    )
    self.assertIn('the caller is unknown', self.denied(_UNKNOWN, 'acl/a'))
    self.assertIn('no such list', self.denied(_ALICE, 'acl/b'))
    self.assertTrue(self.may(_UNKNOWN, 'acl/all'))

  def test_a_file_that_changes_is_read_again(self):
    self.write('{"acl/a": ["alice"]}')
    self.write('{"acl/a": ["bob"]}')
    self.assertFalse(self.may(_ALICE, 'acl/a'))
    self.assertTrue(self.may(_BOB, 'acl/a'))

  def test_last_valid_file_applies_while_it_is_broken(self):
    self.write('{"acl/a": ["alice"]}')
    self.write('{"acl/a": ["alice", ')
    self.assertTrue(self.may(_ALICE, 'acl/a'))
    self.assertFalse(self.may(_BOB, 'acl/a'))
    os.remove(self.path)
    self.access.refresh()
    self.assertTrue(self.may(_ALICE, 'acl/a'))

  def test_file_that_was_never_valid_allows_no_caller(self):
    self.write('nonsense')
    self.assertIn('cannot be used', self.denied(_ALICE, 'acl/a'))
    self.assertTrue(self.may(_ALICE, 'acl/all'))
    with self.assertRaises(errors.PermissionDenied):
      self.access.check_server(_ALICE, 'Join')
    with self.assertRaisesRegex(errors.FailedPrecondition, 'not JSON'):
      self.access.check_name('acl/a')

  def test_unknown_acl_names_are_refused(self):
    self.write('{"acl/a": []}')
    for name in ('', 'acl/all', 'acl/a'):
      self.access.check_name(name)
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'has no list acl/b.*: acl/a'
    ):
      self.access.check_name('acl/b')
    with self.assertRaisesRegex(errors.InvalidArgument, 'must start with'):
      self.access.check_name('mdb/a')

  def test_admins_of_the_cell_and_of_a_model(self):
    self.write('{"acl/admins": ["alice"], "acl/model": ["bob"]}')
    self.access.check_admin(_UNKNOWN, 'Publish')  # The config has acl/all.
    self.set_admin('acl/admins')
    self.access.refresh()
    self.access.check_admin(_ALICE, 'Publish')
    self.access.check_admin(_ALICE, 'Update', 'acl/model')
    self.access.check_admin(_BOB, 'Update', 'acl/model')
    self.access.check_admin(_UNKNOWN, 'Update', 'acl/all')
    for names, own in ((_BOB, ''), (_UNKNOWN, 'acl/model'), (_BOB, 'acl/no')):
      with self.assertRaises(errors.PermissionDenied):
        self.access.check_admin(names, 'Update', own)

  def test_missing_admin_list_has_no_members(self):
    self.set_admin('acl/no')
    self.access.refresh()
    with self.assertRaises(errors.PermissionDenied):
      self.access.check_admin(_ALICE, 'Publish')

  def test_servers_are_admins_unless_they_have_an_acl(self):
    self.access.check_server(_UNKNOWN, 'Join')
    self.set_admin('acl/admins')
    self.write('{"acl/admins": ["alice"]}')
    self.access.check_server(_ALICE, 'Join')
    with self.assertRaises(errors.PermissionDenied):
      self.access.check_server(_BOB, 'Join')
    self.write('{"acl/admins": ["alice"], "acl/servers": ["bob"]}')
    self.access.check_server(_BOB, 'Join')
    for names in (_ALICE, _UNKNOWN):
      with self.assertRaises(errors.PermissionDenied):
        self.access.check_server(names, 'Join')

  def test_broken_config_has_no_admins(self):
    with open(cell.config_path(self.root, _CELL), 'wb') as f:
      f.write(b'\xff\xff')
    opened = access.Access.from_cell(self.root, _CELL)
    with self.assertRaises(errors.PermissionDenied):
      opened.check_admin(_ALICE, 'Publish')


_METHOD = '/test.Test/Who'


def _who(request: bytes, context: grpc.ServicerContext) -> bytes:
  del request
  texts = (','.join(access.caller_names(context)), access.caller_name(context))
  return '|'.join((*texts, access.client_of(context))).encode()


class CallerTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    self.addCleanup(tls.configure, None)
    self.addCleanup(access.trust, ())
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

  def test_subject_alternative_names_identify_callers(self):
    alice = self.certs.make('alice', 'al.test', 'a@b.test', 'spiffe://t/al')
    self.assertEqual(
      self.ask(alice),
      'spiffe://t/al,al.test,a@b.test|spiffe://t/al|spiffe://t/al',
    )

  def test_common_name_identifies_callers_otherwise(self):
    # The certificate's only alternative name is an address, which is not a
    # caller's name.
    self.assertEqual(
      self.ask(self.certs.make('ip', '10.0.0.1')),
      '10.0.0.1|10.0.0.1|10.0.0.1',
    )

  def test_caller_without_a_certificate_is_unknown(self):
    server = dataclasses.replace(
      self.certs.server(), require_client_certs=False
    )
    self.address = self.serve(server)
    client = tls.Settings(
      ca_file=self.certs.ca_file, server_name=cell_certs.SERVER_NAME
    )
    self.assertEqual(self.ask(client), '||127.0.0.1')
    self.address = self.serve(tls.Settings())
    claim = (access.METADATA_KEY, 'alice')
    self.assertEqual(self.ask(tls.Settings()), '||127.0.0.1')
    self.assertEqual(self.ask(tls.Settings(), claim), '||127.0.0.1')

  def test_trusted_proxies_name_their_callers(self):
    gateway = self.certs.make('gateway', 'gateway.test')
    claim = (access.METADATA_KEY, 'alice')
    # The gateway does not even count as itself, because it would lend its
    # rights to its users.
    self.assertEqual(self.ask(gateway, claim), '||127.0.0.1')
    access.trust(['gateway.test'])
    self.assertEqual(self.ask(gateway, claim), 'alice|alice|alice')
    self.assertEqual(
      self.ask(gateway), 'gateway.test|gateway.test|gateway.test'
    )
    for claims in (
      [(access.METADATA_KEY, '')],
      [(access.METADATA_KEY, 'a b')],
      [(access.METADATA_KEY, 'x' * 257)],
      [claim, (access.METADATA_KEY, 'bob')],
    ):
      self.assertEqual(self.ask(gateway, *claims), '||127.0.0.1')

  def test_certificates_of_http_clients_have_names(self):
    subject = ((('commonName', 'al'),),)
    self.assertEqual(access.names_in({'subject': subject}), ('al',))
    alternative = (
      ('email', 'a@b.test'),
      ('DNS', 'al.test'),
      ('IP Address', '10.0.0.1'),
      ('URI', 'spiffe://t/al'),
    )
    self.assertEqual(
      access.names_in({'subject': subject, 'subjectAltName': alternative}),
      ('spiffe://t/al', 'al.test', 'a@b.test'),
    )
    self.assertEqual(access.names_in({}), ())

  def test_special_characters_in_names_are_refused(self):
    acl_file.check_name('spiffe://test/a-b_c.d@e')
    for name in ('', 'a b', 'é', 'a\n', 'x' * 257):
      with self.assertRaises(errors.InvalidArgument):
        acl_file.check_name(name)


if __name__ == '__main__':
  absltest.main()
