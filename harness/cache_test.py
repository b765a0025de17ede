import contextlib
import io
import os
import sys
import time
from unittest import mock

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized

from harness import cache as program
from harness.caching import cache as cache_lib
from saxml_ext.common import user_path
from saxml_ext.common.testing import modules


class CacheProgramTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    root = os.path.join(self.create_tempdir().full_path, 'cache')
    self._cache = cache_lib.Cache(root).create()
    self._write('data/squad/dev-v1.1.json', 2_500)
    self._write('models/m.onnx', 10, days=40)
    self._write('jax/jit_f-1234', 7, days=50)
    self._write('jax/jit_f-5678', 8)

  def _write(self, path: str, size: int, days: int = 0) -> None:
    path = os.path.join(self._cache.root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file:
      file.write(b'x' * size)
    when = time.time() - days * 24 * 3600
    os.utime(path, (when, when))

  def _run(self, *words: str, answer: str | None = None, **values) -> str:
    printed = io.StringIO()
    stdin = io.StringIO(answer)
    stdin.isatty = lambda: answer is not None
    values = {'cache_dir': self._cache.root} | values
    with (
      flagsaver.flagsaver(**values),
      contextlib.redirect_stdout(printed),
      mock.patch.object(sys, 'stdin', stdin),
    ):
      program.main(('cache', *words))
    return printed.getvalue()

  def _exists(self, path: str) -> bool:
    return os.path.exists(os.path.join(self._cache.root, path))

  def test_show(self):
    lines = self._run('show').splitlines()
    self.assertEqual(
      lines[0].split(), ['kind', 'name', 'size', 'last', 'use', 'path']
    )
    self.assertRegex(
      lines[1], rf'^data +squad +2\.5 kB .*{self._cache.data}/squad$'
    )
    self.assertRegex(lines[3], r'^jax +\(2 files\) +15 B ')
    self.assertRegex(lines[4], r'^all +2\.5 kB ')
    self.assertEqual(self._run(), self._run('show'))
    self.assertNotIn('squad', self._run('show', older_than='30d'))
    self.assertIn('nothing in', self._run('show', kind='results'))

  def test_path_makes_the_cache(self):
    root = os.path.join(self.create_tempdir().full_path, 'new')
    printed = self._run('path', 'models', cache_dir=root)
    self.assertEqual(printed, f'{root}/models\n')
    self.assertTrue(cache_lib.Cache(root).is_ours)

  def test_removes_by_name(self):
    self.assertEqual(
      self._run('rm', 'squad', yes=True), 'removed 1 entry (2.5 kB)\n'
    )
    self.assertFalse(self._exists('data/squad'))
    self.assertTrue(self._exists('models/m.onnx'))

  def test_removes_by_kind_and_age(self):
    self._run('rm', kind='jax', older_than='7w', yes=True)
    self.assertFalse(self._exists('jax/jit_f-1234'))
    self.assertTrue(self._exists('jax/jit_f-5678'))
    self._run('rm', older_than='30d', yes=True)
    self.assertFalse(self._exists('models/m.onnx'))
    self.assertEqual(
      self._run('rm', older_than='30d', yes=True), 'nothing to remove\n'
    )

  def test_asks_on_a_terminal(self):
    for answer in ('', '\n', 'n\n'):  # The first is the end of the input.
      self.assertIn('nothing removed', self._run('rm', 'squad', answer=answer))
    self.assertTrue(self._exists('data/squad'))
    self.assertIn('removed 1', self._run('rm', 'squad', answer='y\n'))
    self.assertFalse(self._exists('data/squad'))

  def test_refuses_without_a_terminal(self):
    with self.assertRaisesRegex(SystemExit, 'cache: .*--yes removes them'):
      self._run('rm', 'squad')
    self.assertTrue(self._exists('data/squad'))

  @parameterized.parameters(
    (('rm', 'nothing'), {}, SystemExit, "cache holds no 'nothing'"),
    (('rm', '..'), {}, SystemExit, "cache holds no '..'"),
    (('rm',), {}, app.UsageError, 'nothing is named'),
    (('rm',), {'older_than': '3'}, SystemExit, '--older_than=3: write'),
    (('show', 'all'), {}, app.UsageError, 'show all: say `show`'),
    (('path',), {}, app.UsageError, 'path KIND'),
    (('path', 'tmp'), {}, SystemExit, "no kind 'tmp'"),
  )
  def test_tells_what_is_wrong(self, words, values, kind, message):
    with self.assertRaisesRegex(kind, message):
      self._run(*words, yes=True, **values)
    self.assertTrue(self._exists('data/squad'))

  def test_refuses_a_directory_of_others(self):
    home = self.create_tempdir().full_path
    os.makedirs(os.path.join(home, 'data', 'thesis'))
    with self.assertRaisesRegex(SystemExit, 'no cache of this program'):
      self._run('rm', 'thesis', cache_dir=home, yes=True)
    self.assertTrue(os.path.isdir(os.path.join(home, 'data', 'thesis')))

  def test_says_that_a_linked_kind_is_left_out(self):
    os.rmdir(self._cache.results)
    os.symlink(self.create_tempdir().full_path, self._cache.results)
    self.assertIn('results is a symbolic link', self._run('show'))

  def test_as_typed_with_flags_behind_and_dashes(self):
    done = modules.run(
      'harness.cache',
      'rm',
      '--kind=jax',
      '--older-than=30d',
      '--yes',
      **{user_path.CACHE: self._cache.root},
    )
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertEqual(done.stdout, 'removed 1 entry (7 B)\n')


if __name__ == '__main__':
  absltest.main()
