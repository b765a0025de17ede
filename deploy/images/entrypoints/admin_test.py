"""Tests of the variables that the images' programs accept."""

import os

from absl.testing import absltest
from absl.testing import parameterized

from deploy.images.entrypoints import admin
from deploy.images.entrypoints import model
from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.protobuf import admin_pb2


class EntrypointsTest(parameterized.TestCase):
  @parameterized.parameters(
    ({}, ''),
    ({'SAX_ROOT': '/srv/root'}, '/srv/root'),
    ({'SAX_ROOT': '/srv/root', 'GSBUCKET': 'b'}, '/srv/root'),
    ({'GSBUCKET': 'b'}, 'gs://b/sax-root'),
    ({'SAX_DIR': '/srv/sax', 'SAX_ROOT': ''}, '/srv/sax/sax-root'),
    (
      {'SAX_GCS_BUCKET': 'b', 'SAX_REPLICA_NAME': 'r'},
      'gs://b/r/sax-root',
    ),
    ({'SAX_GCS_BUCKET': 'b'}, ''),
  )
  def test_roots(self, variables, expected):
    self.assertEqual(model.sax_root(variables), expected)

  def test_bucket_is_enough(self):
    self.assertEqual(
      admin.settings({'GSBUCKET': 'b'}),
      {
        'SAX_ROOT': 'gs://b/sax-root',
        'SAX_FS_ROOT': 'gs://b/sax-fs-root',
        'SAX_CELL': '/sax/test',
        'SAX_ADMIN_SERVER_PORT': '10000',
      },
    )

  def test_all_variables_are_read(self):
    settings = admin.settings(
      {'SAX_ROOT': '/r', 'FS_ROOT': '/f', 'SAX_CELL': '/sax/a', 'PORT': '7'}
    )
    self.assertEqual(
      settings,
      {
        'SAX_ROOT': '/r',
        'SAX_FS_ROOT': '/f',
        'SAX_CELL': '/sax/a',
        'SAX_ADMIN_SERVER_PORT': '7',
      },
    )

  def test_missing_config_is_not_replaced(self):
    root, fs_root = (self.create_tempdir().full_path for _ in range(2))
    settings = admin.settings({'SAX_ROOT': root, 'FS_ROOT': fs_root})
    self.assertFalse(admin.is_set_up(settings))
    config = admin_pb2.Config(fs_root=fs_root, admin_acl='acl/admins')
    cell.write_config(root, '/sax/test', config)
    self.assertTrue(admin.is_set_up(settings))
    state_path = cell.state_path(fs_root, '/sax/test')
    storage.make_dirs(os.path.dirname(state_path))
    storage.write_bytes(state_path, b'')
    os.remove(cell.config_path(root, '/sax/test'))
    with self.assertRaisesRegex(errors.FailedPrecondition, 'is gone'):
      admin.is_set_up(settings)
    cell.write_config(root, '/sax/test', config)
    os.truncate(cell.config_path(root, '/sax/test'), 5)
    with self.assertRaisesRegex(errors.Internal, 'config.proto'):
      admin.is_set_up(settings)

  @parameterized.parameters({}, {'SAX_ROOT': '/r'}, {'FS_ROOT': '/f'})
  def test_missing_variables_are_named(self, **variables):
    with self.assertRaisesRegex(errors.InvalidArgument, 'GSBUCKET'):
      admin.settings(variables)


if __name__ == '__main__':
  absltest.main()
