import os
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import cache_dir


class CacheDirTest(absltest.TestCase):
  def test_own_variable_goes_before_xdg_before_home(self):
    settings = {
      'HOME': '/home/ada',
      cache_dir.VARIABLE: '/disk/cache/',
      'XDG_CACHE_HOME': '/xdg',
    }
    with mock.patch.dict(os.environ, settings, clear=True):
      self.assertEqual(cache_dir.default(), '/disk/cache')
      os.environ[cache_dir.VARIABLE] = ''
      self.assertEqual(cache_dir.default(), '/xdg/gptj_sax')
      del os.environ['XDG_CACHE_HOME']
      self.assertEqual(cache_dir.default(), '/home/ada/.cache/gptj_sax')

  def test_relative_variable_starts_at_the_users_directory(self):
    settings = {
      cache_dir.VARIABLE: '../c',
      'BUILD_WORKING_DIRECTORY': '/where/i/am',
    }
    with mock.patch.dict(os.environ, settings):
      self.assertEqual(cache_dir.default(), '/where/i/c')

  def test_create_makes_parents_once(self):
    path = os.path.join(self.create_tempdir().full_path, 'a', 'b')
    self.assertEqual(cache_dir.create(path), path)
    self.assertTrue(os.path.isdir(path))
    self.assertEqual(cache_dir.create(path), path)

  def test_error_names_directory_reason_and_variable(self):
    file = self.create_tempfile('file').full_path
    for path in ('/proc/nobody/cache', '/proc/self', f'{file}/cache'):
      with self.subTest(path):
        with self.assertRaisesRegex(
          OSError,
          rf'^The cache directory {path} .*\(.+\)\. Set \$GPTJ_SAX_CACHE',
        ):
          cache_dir.create(path)


if __name__ == '__main__':
  absltest.main()
