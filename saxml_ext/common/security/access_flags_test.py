"""Tests of the warning about servers that anyone may change."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized

from saxml_ext.common import cell
from saxml_ext.common.security import access
from saxml_ext.common.security import access_flags
from saxml_ext.common.security import tls
from saxml_ext.protobuf import admin_pb2

_CELL = '/sax/test'


class AccessFlagsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.addCleanup(tls.configure, None)
    tls.configure(tls.Settings())

  def lists(self, admin_acl: str) -> access.Access:
    root = self.create_tempdir().full_path
    config = admin_pb2.Config(fs_root=root, admin_acl=admin_acl)
    cell.write_config(root, _CELL, config)
    path = pathlib.Path(root, 'acls.json')
    path.write_text(json.dumps({'acl/admins': ['alice']}))
    return access.Access.from_cell(root, _CELL, str(path))

  @parameterized.parameters(
    ('', tls.Settings(), 'all interfaces without TLS and access lists'),
    ('10.1.2.3', tls.Settings(), '10.1.2.3 without TLS and access lists'),
    ('', tls.Settings('c', 'k'), 'all interfaces without access lists'),
    (
      '',
      tls.Settings('c', 'k', 'a', require_client_certs=False),
      'without access lists',
    ),
  )
  def test_open_servers_warn_in_one_line(self, host, settings, expected):
    tls.configure(settings)
    with flagsaver.flagsaver(host=host):
      with self.assertLogs(level='WARNING') as logs:
        access_flags.warn_if_open(self.lists('acl/all'))
    self.assertLen(logs.output, 1)
    self.assertIn(expected, logs.output[0])
    self.assertIn('--host=127.0.0.1', logs.output[0])
    self.assertNotIn('\n', logs.output[0])

  @parameterized.parameters(
    ('127.0.0.1', tls.Settings(), 'acl/all'),
    ('::1', tls.Settings(), 'acl/all'),
    ('localhost', tls.Settings(), 'acl/all'),
    ('', tls.Settings('c', 'k', 'a'), 'acl/all'),
    ('', tls.Settings(), 'acl/admins'),
    ('', tls.Settings(), 'acl/missing'),
  )
  def test_protected_servers_do_not_warn(self, host, settings, admin_acl):
    tls.configure(settings)
    with flagsaver.flagsaver(host=host):
      with self.assertNoLogs(level='WARNING'):
        access_flags.warn_if_open(self.lists(admin_acl))


if __name__ == '__main__':
  absltest.main()
