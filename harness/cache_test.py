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

  def test_linked_kind_is_reported_as_left_out(self):
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


_DAY = 24 * 3600


class EntriesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._cache = cache_lib.Cache(os.path.join(self._dir, 'cache')).create()

  def _write(self, path: str, size: int = 1, day: int = 100) -> str:
    path = os.path.join(self._cache.root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file:
      file.write(b'x' * size)
    os.utime(path, (day * _DAY, day * _DAY))
    return path

  def _names(self, entries) -> list[str]:
    return [f'{entry.kind}/{entry.name}' for entry in entries]

  def _list(self) -> list[program.Entry]:
    return program.list_entries(self._cache)

  def test_lists_size_and_last_use_of_whole_folders(self):
    self._write('data/squad/dev.json', 10, day=3)
    self._write('data/squad/deep/vocab.txt', 5, day=7)
    self._write('models/m.onnx', 2, day=4)
    squad, model = self._list()
    self.assertEqual(
      (squad.kind, squad.name, squad.size, squad.last_use),
      ('data', 'squad', 15, 7 * _DAY),
    )
    self.assertEqual((model.name, model.size), ('m.onnx', 2))
    self.assertEmpty(program.list_entries(cache_lib.Cache('/no/where')))

  def test_selects_by_name_kind_and_age(self):
    for path, day in (
      ('data/a', 1),
      ('data/b', 9),
      ('models/a', 9),
      ('jax/c', 1),
    ):
      self._write(path, day=day)
    entries = self._list()
    select = program.select
    self.assertEqual(self._names(select(entries, ['b'])), ['data/b'])
    self.assertEqual(self._names(select(entries, ['models/a'])), ['models/a'])
    self.assertEqual(self._names(select(entries, ['a'], 'data')), ['data/a'])
    self.assertEqual(
      self._names(select(entries, unused_since=5 * _DAY)), ['data/a', 'jax/c']
    )
    self.assertLen(select(entries, ['b', 'data/b']), 1)
    with self.assertRaisesRegex(ValueError, 'say data/a or models/a'):
      select(entries, ['a'])
    for name in ('..', '../cache', '/etc/passwd', 'data/..', '.', '', 'data'):
      with self.assertRaisesRegex(ValueError, 'the cache holds no'):
        select(entries, [name])

  def test_removes_files_and_folders(self):
    self._write('data/squad/deep/dev.json')
    self._write('models/m.onnx')
    for entry in self._list():
      program.remove(self._cache, entry)
    self.assertEmpty(self._list())
    self.assertTrue(os.path.isdir(self._cache.data))

  def test_a_link_goes_and_what_it_leads_to_stays(self):
    outside = os.path.join(self._dir, 'outside')
    os.mkdir(outside)
    kept = os.path.join(outside, 'kept')
    with open(kept, 'wb') as file:
      file.write(b'x' * 1000)
    os.symlink(outside, os.path.join(self._cache.data, 'link'))
    os.mkdir(os.path.join(self._cache.models, 'm'))
    os.symlink(outside, os.path.join(self._cache.models, 'm', 'inner'))
    for entry in self._list():
      self.assertLess(entry.size, 1000)
      program.remove(self._cache, entry)
    self.assertEmpty(self._list())
    self.assertTrue(os.path.exists(kept))

  def test_folder_of_a_kind_that_is_a_link_is_left_alone(self):
    outside = os.path.join(self._dir, 'outside')
    os.makedirs(os.path.join(outside, 'model'))
    os.rmdir(self._cache.models)
    os.symlink(outside, self._cache.models)
    self.assertEqual(program.links(self._cache), [self._cache.models])
    self.assertEmpty(self._list())
    path = os.path.join(self._cache.models, 'model')
    with self.assertRaisesRegex(ValueError, 'is not in the cache'):
      program.remove(
        self._cache, program.Entry('models', 'model', path, 0, 0.0)
      )
    self.assertTrue(os.path.isdir(os.path.join(outside, 'model')))

  def test_root_may_be_a_link(self):
    link = os.path.join(self._dir, 'link')
    os.symlink(self._cache.root, link)
    self._write('data/a')
    cache = cache_lib.Cache(link)
    program.remove(cache, program.list_entries(cache)[0])
    self.assertEmpty(self._list())

  def test_refuses_what_is_outside(self):
    for path in ('/etc/passwd', os.path.join(self._cache.root, 'data')):
      with self.assertRaisesRegex(ValueError, 'is not in the cache'):
        program.remove(self._cache, program.Entry('data', 'x', path, 0, 0.0))

  def test_refuses_a_foreign_root(self):
    foreign = cache_lib.Cache(os.path.join(self._dir, 'home'))
    os.makedirs(os.path.join(foreign.data, 'thesis'))
    (entry,) = program.list_entries(foreign)
    with self.assertRaisesRegex(ValueError, 'no cache of this program'):
      program.remove(foreign, entry)
    self.assertTrue(os.path.isdir(entry.path))


if __name__ == '__main__':
  absltest.main()
