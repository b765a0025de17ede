"""Tests that TLS flags override environment variables."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import flagsaver

from saxml_ext.common import errors
from saxml_ext.common.security import tls
from saxml_ext.common.security import tls_flags


class TlsFlagsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    # Child processes get the changes of `os.environ`, which is restored in the
    # end.
    self.enterContext(
      mock.patch.dict(
        os.environ, {'SAX_TLS_CA_FILE': '/e/ca', 'SAX_TLS_SERVER_NAME': 'e'}
      )
    )

  def test_flags_override_the_environment(self):
    self.assertEqual(tls.current(), tls.Settings('', '', '/e/ca', 'e'))
    with flagsaver.flagsaver(
      tls_cert_file='/f/c',
      tls_key_file='/f/k',
      tls_server_name='f',
      tls_require_client_certs=False,
    ):
      self.assertEqual(
        tls.current(), tls.Settings('/f/c', '/f/k', '/e/ca', 'f', False)
      )

  def test_empty_flag_overrides_the_environment(self):
    with flagsaver.flagsaver(tls_ca_file='', tls_server_name=''):
      self.assertFalse(tls.current().is_set)

  def test_children_inherit_the_settings(self):
    with flagsaver.flagsaver(tls_cert_file='/f/c', tls_key_file='/f/k'):
      tls_flags.export()
      settings = tls_flags.settings()
    self.assertEqual(tls.from_environment(), settings)
    self.assertEqual(settings.cert_file, '/f/c')

  def test_key_without_certificate_is_refused_at_start(self):
    with flagsaver.flagsaver(tls_key_file='/f/k'):
      with self.assertRaisesRegex(errors.InvalidArgument, '--tls_cert_file'):
        tls_flags.export()


if __name__ == '__main__':
  absltest.main()
