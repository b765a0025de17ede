"""Tests saxutil in a cell that has TLS and access control lists."""

import os

from absl.testing import absltest

from saxml_ext.client.testing import fake_cell
from saxml_ext.client.testing import saxutil_fixture
from saxml_ext.common.security import acl_file
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs

_CELL = '/sax/test'


class TlsTest(saxutil_fixture.SaxutilTest):
  def setUp(self):
    self.certs = cell_certs.CellCerts(self.create_tempdir().full_path)
    tls.configure(self.certs.server())
    self.addCleanup(tls.configure, None)
    super().setUp()
    self.cell.add_server()
    self.client = self.certs.make('alice')

  def flags(self, **changes: str) -> list[str]:
    flags = {
      'cert_file': self.client.cert_file,
      'key_file': self.client.key_file,
      'ca_file': self.client.ca_file,
      'server_name': cell_certs.SERVER_NAME,
    }
    return [f'--tls_{k}={v}' for k, v in (flags | changes).items() if v]

  def test_commands_of_admin_and_model_server(self):
    out = self.check(0, *self.flags(), 'ls', _CELL)
    self.assertIn('m', out)
    self.check(0, *self.flags(), 'lm.generate', fake_cell.MODEL, 'text')

  def test_wrong_setup_fails_at_once(self):
    other = cell_certs.CellCerts(self.create_tempdir().full_path)
    for changes, text in (
      ({'ca_file': other.ca_file}, 'not from an authority in --tls_ca_file'),
      ({'server_name': 'other'}, 'Set --tls_server_name='),
      ({'key_file': ''}, 'needs --tls_key_file'),
      ({'ca_file': '/no'}, '/no cannot be read'),
    ):
      self.check(1, *self.flags(**changes), 'ls', _CELL)
      self.assertIn(text, self.stderr)
      self.assertNotIn('no answer within', self.stderr)

  def test_missing_certificate_is_explained(self):
    flags = self.flags(cert_file='', key_file='')
    self.check(1, *flags, 'ls', _CELL)
    self.assertIn('--tls_cert_file and --tls_key_file', self.stderr)
    self.assertNotIn('no answer within', self.stderr)


class AclTest(saxutil_fixture.SaxutilTest):
  def setUp(self):
    super().setUp()
    path = acl_file.path_of(self.cell.root, _CELL)
    with open(path, 'w', encoding='ascii') as f:
      f.write('{"acl/admins": ["alice"]}')

  def test_setacl_accepts_existing_lists(self):
    self.check(0, 'setacl', _CELL, 'acl/admins')
    self.assertEqual(self.check(0, 'getacl', _CELL), 'acl/admins\n')
    self.assertEqual(self.stderr, '')
    self.check(1, 'setacl', _CELL, 'acl/nope')
    self.assertIn('use one of its lists: acl/admins', self.stderr)

  def test_setacl_refuses_missing_lists(self):
    self.check(0, 'setacl', fake_cell.MODEL, 'lm.score', 'acl/gone')
    out = self.check(0, 'getacl', fake_cell.MODEL, 'all')
    self.assertEqual(out, 'lm.score: acl/gone\n')
    self.assertRegex(
      self.stderr, '^Note: acl/gone admits nobody: .* no list acl'
    )

  def test_setacl_names_the_directory_of_lists(self):
    os.remove(acl_file.path_of(self.cell.root, _CELL))
    self.check(1, 'setacl', _CELL, 'acl/admins')
    self.assertIn('Hint: the cell has no access lists', self.stderr)
    self.check(0, 'setacl', fake_cell.MODEL, 'acl/admins')
    self.check(0, 'getacl', fake_cell.MODEL)
    self.assertIn('acls.json', self.stderr)


if __name__ == '__main__':
  absltest.main()
