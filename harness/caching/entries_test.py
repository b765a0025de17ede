import os

from absl.testing import absltest

from harness.caching import cache as cache_lib
from harness.caching import entries

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

  def _names(self, found) -> list[str]:
    return [f'{entry.kind}/{entry.name}' for entry in found]

  def _list(self) -> list[entries.Entry]:
    return entries.list_entries(self._cache)

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
    self.assertEmpty(entries.list_entries(cache_lib.Cache('/no/where')))

  def test_selects_by_name_kind_and_age(self):
    for path, day in (
      ('data/a', 1),
      ('data/b', 9),
      ('models/a', 9),
      ('jax/c', 1),
    ):
      self._write(path, day=day)
    found = self._list()
    select = entries.select
    self.assertEqual(self._names(select(found, ['b'])), ['data/b'])
    self.assertEqual(self._names(select(found, ['models/a'])), ['models/a'])
    self.assertEqual(self._names(select(found, ['a'], 'data')), ['data/a'])
    self.assertEqual(
      self._names(select(found, unused_since=5 * _DAY)), ['data/a', 'jax/c']
    )
    self.assertLen(select(found, ['b', 'data/b']), 1)
    with self.assertRaisesRegex(ValueError, 'say data/a or models/a'):
      select(found, ['a'])
    for name in ('..', '../cache', '/etc/passwd', 'data/..', '.', '', 'data'):
      with self.assertRaisesRegex(ValueError, 'the cache holds no'):
        select(found, [name])

  def test_removes_files_and_folders(self):
    self._write('data/squad/deep/dev.json')
    self._write('models/m.onnx')
    for entry in self._list():
      entries.remove(self._cache, entry)
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
      entries.remove(self._cache, entry)
    self.assertEmpty(self._list())
    self.assertTrue(os.path.exists(kept))

  def test_folder_of_a_kind_that_is_a_link_is_left_alone(self):
    outside = os.path.join(self._dir, 'outside')
    os.makedirs(os.path.join(outside, 'model'))
    os.rmdir(self._cache.models)
    os.symlink(outside, self._cache.models)
    self.assertEqual(entries.links(self._cache), [self._cache.models])
    self.assertEmpty(self._list())
    path = os.path.join(self._cache.models, 'model')
    with self.assertRaisesRegex(ValueError, 'is not in the cache'):
      entries.remove(
        self._cache, entries.Entry('models', 'model', path, 0, 0.0)
      )
    self.assertTrue(os.path.isdir(os.path.join(outside, 'model')))

  def test_root_may_be_a_link(self):
    link = os.path.join(self._dir, 'link')
    os.symlink(self._cache.root, link)
    self._write('data/a')
    cache = cache_lib.Cache(link)
    entries.remove(cache, entries.list_entries(cache)[0])
    self.assertEmpty(self._list())

  def test_refuses_what_is_outside(self):
    for path in ('/etc/passwd', os.path.join(self._cache.root, 'data')):
      with self.assertRaisesRegex(ValueError, 'is not in the cache'):
        entries.remove(self._cache, entries.Entry('data', 'x', path, 0, 0.0))

  def test_refuses_a_foreign_root(self):
    foreign = cache_lib.Cache(os.path.join(self._dir, 'home'))
    os.makedirs(os.path.join(foreign.data, 'thesis'))
    (entry,) = entries.list_entries(foreign)
    with self.assertRaisesRegex(ValueError, 'no cache of this program'):
      entries.remove(foreign, entry)
    self.assertTrue(os.path.isdir(entry.path))


if __name__ == '__main__':
  absltest.main()
