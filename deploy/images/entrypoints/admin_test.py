"""Tests of the variables that the images' programs accept."""

from absl.testing import absltest
from absl.testing import parameterized

from deploy.images.entrypoints import admin
from deploy.images.entrypoints import model
from saxml_ext.common import errors


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

  def test_a_bucket_is_enough(self):
    self.assertEqual(
      admin.settings({'GSBUCKET': 'b'}),
      {
        'SAX_ROOT': 'gs://b/sax-root',
        'SAX_FS_ROOT': 'gs://b/sax-fs-root',
        'SAX_CELL': '/sax/test',
        'SAX_ADMIN_SERVER_PORT': '10000',
      },
    )

  def test_everything_can_be_said(self):
    found = admin.settings(
      {'SAX_ROOT': '/r', 'FS_ROOT': '/f', 'SAX_CELL': '/sax/a', 'PORT': '7'}
    )
    self.assertEqual(
      found,
      {
        'SAX_ROOT': '/r',
        'SAX_FS_ROOT': '/f',
        'SAX_CELL': '/sax/a',
        'SAX_ADMIN_SERVER_PORT': '7',
      },
    )

  @parameterized.parameters({}, {'SAX_ROOT': '/r'}, {'FS_ROOT': '/f'})
  def test_what_is_missing_is_said(self, **variables):
    with self.assertRaisesRegex(errors.InvalidArgument, 'GSBUCKET'):
      admin.settings(variables)


if __name__ == '__main__':
  absltest.main()
