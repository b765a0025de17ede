"""Tests of the directories that a model server may read."""

import os

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.common.security import roots


class RootsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.addCleanup(roots.configure, ())
    top = self.create_tempdir().full_path
    self.inside = os.path.join(top, 'models')
    self.outside = os.path.join(top, 'models-of-others')
    for directory in (self.inside, self.outside):
      os.makedirs(f'{directory}/m')
      with open(f'{directory}/m/w', 'wb') as f:
        f.write(b'w')

  def refused(self, path: str) -> None:
    with self.assertRaisesRegex(errors.PermissionDenied, '--load_roots'):
      roots.check(path, 'checkpoint')

  def test_all_paths_are_allowed_without_roots(self):
    for path in (self.outside, '/etc', 'gs://b/a', 'relative', ''):
      roots.check(path, 'checkpoint')

  def test_only_paths_below_a_root_are_allowed(self):
    roots.configure([self.inside, 'gs://b/a/'])
    for path in (
      self.inside,
      f'{self.inside}/',
      f'{self.inside}/m',
      f'{self.inside}/not/there',
      f'{self.inside}/m/../m',
      'gs://b/a',
      'gs://b/a/m',
    ):
      roots.check(path, 'checkpoint')
    for path in (
      self.outside,
      f'{self.inside}/../models-of-others/m',
      f'{self.inside}/m\0',
      '/',
      '/etc/passwd',
      '',
      'models',
      'gs://b',
      'gs://b/ab',
      'gs://b/a/../c',
      'gs://b/a/./c',
      'gs://b/a/%2e%2e/c',
      'gs://c/a',
      's3://b/a',
      'file:///etc/passwd',
    ):
      with self.subTest(path):
        self.refused(path)

  def test_links_are_followed(self):
    roots.configure([self.inside])
    os.symlink(self.outside, f'{self.inside}/link')
    self.refused(f'{self.inside}/link')
    self.refused(f'{self.inside}/link/m')
    os.symlink('m', f'{self.inside}/alias')
    roots.check(f'{self.inside}/alias', 'checkpoint')

  def test_links_within_a_checkpoint_are_followed(self):
    roots.configure([self.inside])
    os.symlink('w', f'{self.inside}/m/own')
    roots.check(f'{self.inside}/m', 'checkpoint')
    os.makedirs(f'{self.inside}/m/deep')
    os.symlink('/etc/passwd', f'{self.inside}/m/deep/w')
    self.refused(f'{self.inside}/m')

  def test_root_may_be_a_link(self):
    link = f'{self.outside}/root'
    os.symlink(self.inside, link)
    roots.configure([link])
    roots.check(f'{link}/m', 'checkpoint')
    roots.check(f'{self.inside}/m', 'checkpoint')

  def test_roots_must_be_absolute_paths(self):
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'must be an absolute path'
    ):
      roots.configure(['models'])


if __name__ == '__main__':
  absltest.main()
