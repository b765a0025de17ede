"""Tests of paths that a user typed."""

import os
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import user_path


class UserPathTest(absltest.TestCase):
  def test_relative_paths_start_in_the_directory_of_bazel_run(self):
    with mock.patch.dict(os.environ, {'BUILD_WORKING_DIRECTORY': '/typed'}):
      self.assertEqual(user_path.resolve('a/b'), '/typed/a/b')
      self.assertEqual(user_path.resolve('/tmp/x'), '/tmp/x')

  def test_relative_paths_start_in_the_working_directory_otherwise(self):
    with mock.patch.dict(os.environ):
      os.environ.pop('BUILD_WORKING_DIRECTORY', None)
      self.assertEqual(user_path.resolve('a'), os.path.join(os.getcwd(), 'a'))

  def test_home_directory_is_expanded(self):
    with mock.patch.dict(os.environ, {'HOME': '/home/me'}):
      self.assertEqual(user_path.resolve('~/x'), '/home/me/x')

  def test_urls_and_empty_paths_are_unchanged(self):
    self.assertEqual(user_path.resolve('gs://bucket/dir'), 'gs://bucket/dir')
    self.assertEqual(user_path.resolve(''), '')
    self.assertIsNone(user_path.resolve(None))


class CacheDirTest(absltest.TestCase):
  def test_own_variable_precedes_xdg_and_home(self):
    settings = {
      'HOME': '/home/ada',
      user_path.CACHE: '/disk/cache/',
      'XDG_CACHE_HOME': '/xdg',
    }
    with mock.patch.dict(os.environ, settings, clear=True):
      self.assertEqual(user_path.default_cache(), '/disk/cache')
      os.environ[user_path.CACHE] = ''
      self.assertEqual(user_path.default_cache(), '/xdg/gptj_sax')
      del os.environ['XDG_CACHE_HOME']
      self.assertEqual(user_path.default_cache(), '/home/ada/.cache/gptj_sax')

  def test_relative_variable_starts_at_the_users_directory(self):
    settings = {
      user_path.CACHE: '../c',
      'BUILD_WORKING_DIRECTORY': '/where/i/am',
    }
    with mock.patch.dict(os.environ, settings):
      self.assertEqual(user_path.default_cache(), '/where/i/c')

  def test_create_makes_missing_parents(self):
    path = os.path.join(self.create_tempdir().full_path, 'a', 'b')
    self.assertEqual(user_path.create_cache(path), path)
    self.assertTrue(os.path.isdir(path))
    self.assertEqual(user_path.create_cache(path), path)

  def test_error_names_directory_reason_and_variable(self):
    file = self.create_tempfile('file').full_path
    for path in ('/proc/nobody/cache', '/proc/self', f'{file}/cache'):
      with self.subTest(path):
        with self.assertRaisesRegex(
          OSError,
          rf'^The cache directory {path} .*\(.+\)\. Set \$GPTJ_SAX_CACHE',
        ):
          user_path.create_cache(path)


if __name__ == '__main__':
  absltest.main()
