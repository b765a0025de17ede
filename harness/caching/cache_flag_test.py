import os
from unittest import mock

from absl.testing import absltest
from absl.testing import flagsaver

from harness.caching import cache_flag
from saxml_ext.common import user_path


class CacheFlagTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enterContext(mock.patch.dict(os.environ, HOME='/home/ada'))
    for name in (user_path.CACHE, 'XDG_CACHE_HOME'):
      os.environ.pop(name, None)

  def test_lies_in_the_home_if_nothing_is_named(self):
    self.assertEqual(cache_flag.get().root, '/home/ada/.cache/gptj_sax')

  def test_chosen_results_keep_it_out_of_the_home(self):
    self.assertEqual(cache_flag.get('/disk/r').root, '/disk/r/.cache')

  def test_flag_and_variable_go_before_the_results(self):
    os.environ[user_path.CACHE] = '/variable'
    self.assertEqual(cache_flag.get('/disk/r').root, '/variable')
    with flagsaver.flagsaver(cache_dir='/flag'):
      self.assertEqual(cache_flag.get('/disk/r').root, '/flag')


if __name__ == '__main__':
  absltest.main()
