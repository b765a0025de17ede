"""Tests of paths that a user typed."""

import os
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import user_path


class UserPathTest(absltest.TestCase):
  def test_relative_paths_start_where_bazel_run_was_typed(self):
    with mock.patch.dict(os.environ, {'BUILD_WORKING_DIRECTORY': '/typed'}):
      self.assertEqual(user_path.resolve('a/b'), '/typed/a/b')
      self.assertEqual(user_path.resolve('/tmp/x'), '/tmp/x')

  def test_without_bazel_they_start_in_the_working_directory(self):
    with mock.patch.dict(os.environ):
      os.environ.pop('BUILD_WORKING_DIRECTORY', None)
      self.assertEqual(user_path.resolve('a'), os.path.join(os.getcwd(), 'a'))

  def test_home_directory_is_expanded(self):
    with mock.patch.dict(os.environ, {'HOME': '/home/me'}):
      self.assertEqual(user_path.resolve('~/x'), '/home/me/x')

  def test_urls_and_nothing_stay_as_they_are(self):
    self.assertEqual(user_path.resolve('gs://bucket/dir'), 'gs://bucket/dir')
    self.assertEqual(user_path.resolve(''), '')
    self.assertIsNone(user_path.resolve(None))


if __name__ == '__main__':
  absltest.main()
