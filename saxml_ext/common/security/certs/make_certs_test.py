"""Tests of new certificates, which must pass openssl's checks."""

import os
import ssl
import stat

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.common.security.certs import certificates
from saxml_ext.common.security.certs import make_certs


class MakeCertsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = os.path.join(self.create_tempdir().full_path, 'tls')

  def make(self, *names: str, renew: bool = False) -> str:
    return make_certs.make(self.directory, names, 1, 10, renew)

  def test_one_authority_signs_all_certificates(self):
    server = self.make('sax.internal', '10.0.0.1')
    with open(f'{self.directory}/ca.pem', 'rb') as f:
      authority = f.read()
    client = self.make('spiffe://test/alice')
    with open(f'{self.directory}/ca.pem', 'rb') as f:
      self.assertEqual(f.read(), authority)
    self.assertEndsWith(client, '/spiffe_test_alice.pem')
    for path in (server, client):
      context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
      context.load_cert_chain(path, f'{path[:-4]}.key')
      mode = os.stat(f'{path[:-4]}.key').st_mode
      self.assertEqual(stat.S_IMODE(mode), 0o600)
    with open(client, 'rb') as f:
      [certificate] = certificates.load(f.read(), 'it')
    self.assertEqual(
      certificates.names_of(certificate), ('spiffe://test/alice',)
    )

  def test_files_are_replaced_only_on_request(self):
    path = self.make('a')
    with open(path, 'rb') as f:
      first = f.read()
    with self.assertRaisesRegex(errors.AlreadyExists, '--renew'):
      self.make('a')
    self.make('a', renew=True)
    with open(path, 'rb') as f:
      self.assertNotEqual(f.read(), first)

  def test_lost_key_is_reported(self):
    self.make('a')
    os.remove(f'{self.directory}/ca.key')
    with self.assertRaisesRegex(errors.FailedPrecondition, 'ca.key'):
      self.make('b')

  @parameterized.parameters('ca', '...', 'é', '')
  def test_invalid_names_are_refused(self, name: str):
    with self.assertRaises(errors.InvalidArgument):
      self.make(name)
    self.assertEmpty(
      [n for n in self.files() if not n.startswith('ca.')], self.files()
    )

  def files(self) -> list[str]:
    if not os.path.isdir(self.directory):
      return []
    return os.listdir(self.directory)


if __name__ == '__main__':
  absltest.main()
