import os
from unittest import mock

from absl.testing import absltest
from absl.testing import flagsaver

from harness.caching import cache as cache_lib
from saxml_ext.common import user_path


class CacheTest(absltest.TestCase):
  def test_flag_goes_before_the_default(self):
    with mock.patch.dict(os.environ, {user_path.CACHE: '/disk/cache'}):
      self.assertEqual(cache_lib.root('/named/'), '/named')
      self.assertEqual(cache_lib.root(''), '/disk/cache')
      self.assertEqual(cache_lib.root(), '/disk/cache')

  def test_relative_flag_starts_at_the_users_directory(self):
    with mock.patch.dict(os.environ, BUILD_WORKING_DIRECTORY='/where/i/am'):
      self.assertEqual(cache_lib.root('../c'), '/where/i/c')

  def test_unwritable_root_names_the_variable(self):
    with self.assertRaisesRegex(OSError, r'/proc/cache .*\$GPTJ_SAX_CACHE'):
      cache_lib.Cache('/proc/cache').create()

  def test_folders(self):
    cache = cache_lib.Cache('/c')
    self.assertEqual(
      [cache.data, cache.models, cache.jax, cache.results],
      ['/c/data', '/c/models', '/c/jax', '/c/results'],
    )
    with self.assertRaisesRegex(
      ValueError, "no kind '..' of files. Available: data"
    ):
      cache.folder('..')

  def test_is_made_and_marked_once(self):
    root = os.path.join(self.create_tempdir().full_path, 'a', 'b')
    cache = cache_lib.Cache(root)
    self.assertFalse(cache.is_ours)
    self.assertIs(cache.create(), cache)
    self.assertTrue(cache.is_ours)
    self.assertCountEqual(os.listdir(root), [*cache_lib.KINDS, cache_lib.TAG])
    cache.create()
    self.assertTrue(cache.is_ours)

  def test_a_directory_of_older_versions_becomes_a_cache(self):
    root = self.create_tempdir().full_path
    os.mkdir(os.path.join(root, 'jax'))
    self.assertTrue(cache_lib.Cache(root).create().is_ours)

  def test_does_not_take_over_what_others_use(self):
    root = self.create_tempdir().full_path
    with open(os.path.join(root, 'thesis.tex'), 'w', encoding='utf-8'):
      pass
    with self.assertRaisesRegex(ValueError, "because 'thesis.tex' in it"):
      cache_lib.Cache(root).create()
    self.assertEqual(os.listdir(root), ['thesis.tex'])

  def test_tag_of_another_program_is_not_ours(self):
    root = self.create_tempdir().full_path
    path = os.path.join(root, cache_lib.TAG)
    with open(path, 'w', encoding='utf-8') as file:
      file.write('Signature: 8a477f597d28d172789f06886806bc55\n# of cargo\n')
    self.assertFalse(cache_lib.Cache(root).is_ours)
    with self.assertRaisesRegex(ValueError, 'cannot become the cache'):
      cache_lib.Cache(root).create()


class CacheFlagTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enterContext(mock.patch.dict(os.environ, HOME='/home/ada'))
    for name in (user_path.CACHE, 'XDG_CACHE_HOME'):
      os.environ.pop(name, None)

  def test_lies_in_the_home_if_nothing_is_named(self):
    self.assertEqual(cache_lib.get().root, '/home/ada/.cache/gptj_sax')

  def test_chosen_results_keep_it_out_of_the_home(self):
    self.assertEqual(cache_lib.get('/disk/r').root, '/disk/r/.cache')

  def test_flag_and_variable_go_before_the_results(self):
    os.environ[user_path.CACHE] = '/variable'
    self.assertEqual(cache_lib.get('/disk/r').root, '/variable')
    with flagsaver.flagsaver(cache_dir='/flag'):
      self.assertEqual(cache_lib.get('/disk/r').root, '/flag')


if __name__ == '__main__':
  absltest.main()
