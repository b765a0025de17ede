import dataclasses
import os
import signal
import subprocess
import sys

from absl.testing import absltest

from harness.pages.testing import jobs
from harness.results import entry
from harness.results import store as store_lib
from harness.results.testing import entries

_OLD = entries.make()
_NEW = dataclasses.replace(_OLD, began='2026-02-01T00:00:00+00:00')
_OTHER = entries.make(
  scenario='Server', began='2026-01-15T00:00:00+00:00', performance=None
)
_HOLD = """
import sys
from harness.results import store as store_lib
with store_lib.hold_lock(sys.argv[1], 'it'):
  print('held', flush=True)
  sys.stdin.read()
"""


class StoreTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = os.path.join(self.create_tempdir().full_path, 'results')
    self._store = store_lib.Store(self._root)

  def _add(self, new: entry.Entry, name: str = 'gptj') -> str:
    with self._store.begin(new.id, name) as directory:
      new.write(directory)
    return directory

  def _begin_and_fail(self, entry_id: str, name: str = 'gptj') -> str:
    with self.assertRaises(KeyboardInterrupt):
      with self._store.begin(entry_id, name) as directory:
        with open(os.path.join(directory, 'log'), 'w', encoding='utf-8'):
          raise KeyboardInterrupt
    return directory

  def test_new_store_is_empty(self):
    self.assertIsNone(self._store.find(_OLD.id))
    self.assertEqual(self._store.all(), store_lib.Content((), (), ()))
    self.assertEqual(self._store.remove(_OLD.id), [])

  def test_a_result_is_found_again(self):
    directory = self._add(_OLD, 'gptj 99/Offline')
    self.assertEqual(
      directory, os.path.join(self._root, f'gptj-99-Offline_{_OLD.id}')
    )
    self.assertEqual(
      directory, self._store.directory_for(_OLD.id, 'gptj 99/Offline')
    )
    self.assertEqual(
      self._store.find(_OLD.id), store_lib.Stored(_OLD, directory)
    )
    self.assertIsNone(self._store.find('0' * 12))

  def test_the_newest_come_first(self):
    for item in (_OLD, _OTHER):
      self._add(item)
    self.assertEqual(
      [item.id for item in self._store.all().entries], [_OTHER.id, _OLD.id]
    )

  def test_unfinished_is_kept_until_it_is_run_again(self):
    directory = self._begin_and_fail(_OLD.id)
    self.assertIsNone(self._store.find(_OLD.id))
    self.assertEqual(
      self._store.all().unfinished,
      (store_lib.Unfinished(_OLD.id, directory),),
    )
    self.assertEqual(os.listdir(directory), ['log'])
    self._add(_OLD)
    self.assertEqual(os.listdir(directory), [entry.FILE])
    self.assertEqual(self._store.all().unfinished, ())

  def test_running_job_is_listed(self):
    with self._store.begin(_OLD.id, 'gptj'):
      (unfinished,) = self._store.all().unfinished
      self.assertEqual(unfinished.process, os.getpid())
      with self.assertRaisesRegex(
        store_lib.Busy, f'result {_OLD.id} belongs to another job'
      ):
        self._add(_OLD)
      with self.assertRaises(store_lib.Busy):
        self._store.remove(_OLD.id)
      self._add(_OTHER)

  def test_failed_rerun_keeps_the_result(self):
    self._add(_OLD)
    directory = self._begin_and_fail(_OLD.id)
    stored = self._store.find(_OLD.id)
    self.assertEqual(stored.entry, _OLD)
    self.assertEqual(stored.directory, directory + '.previous')
    content = self._store.all()
    self.assertEqual(content.entries, (stored,))
    self.assertLen(content.unfinished, 1)
    self._begin_and_fail(_OLD.id, 'other name')
    self.assertEqual(self._store.find(_OLD.id).entry, _OLD)
    self._add(_NEW)
    self.assertEqual(self._store.find(_OLD.id).entry, _NEW)
    self.assertCountEqual(
      os.listdir(self._root), ['.locks', os.path.basename(directory)]
    )

  def test_remove_deletes_all_directories_of_a_result(self):
    self._add(_OTHER)
    self._add(_OLD)
    directory = self._begin_and_fail(_OLD.id)
    self.assertCountEqual(
      self._store.remove(_OLD.id), [directory, directory + '.previous']
    )
    self.assertIsNone(self._store.find(_OLD.id))
    self.assertLen(self._store.all().entries, 1)

  def test_unreadable_results_are_listed(self):
    directory = self._add(_OLD)
    wrong = self._store.directory_for('0' * 12, 'renamed')
    os.makedirs(wrong)
    _OLD.write(wrong)
    with open(os.path.join(directory, entry.FILE), 'w', encoding='utf-8') as f:
      f.write('{')
    os.makedirs(os.path.join(self._root, 'notes'))
    content = self._store.all()
    self.assertEqual(content.entries, ())
    self.assertEqual(content.unfinished, ())
    broken, renamed = content.unreadable
    self.assertRegex(broken.error, 'is no result of the harness')
    self.assertRegex(
      renamed.error, f'Rename the directory, so that it ends in _{_OLD.id}'
    )
    with self.assertRaises(ValueError):
      self._store.find(_OLD.id)
    self._add(_NEW)
    self.assertEqual(self._store.find(_OLD.id).entry, _NEW)


class FindTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.entry = jobs.entry()
    self.directory = jobs.write(
      os.path.join(self.root, 'a', 'server'), self.entry
    )

  def test_by_directory(self):
    self.assertEqual(
      store_lib.find_job(self.directory, 'nowhere'), self.directory
    )

  def test_by_id(self):
    for name in (self.entry.id, self.entry.id[:4]):
      self.assertEqual(store_lib.find_job(name, self.root), self.directory)

  def test_unknown(self):
    for name in ('ffffffff', self.entry.id[:3]):
      with self.assertRaisesRegex(FileNotFoundError, 'neither a directory nor'):
        store_lib.find_job(name, self.root)

  def test_a_directory_without_a_result(self):
    with self.assertRaisesRegex(FileNotFoundError, 'has no result.json'):
      store_lib.find_job(self.root, self.root)

  def test_two_results_of_one_id(self):
    jobs.write(os.path.join(self.root, 'b'), self.entry)
    with self.assertRaisesRegex(ValueError, 'matches 2 results'):
      store_lib.find_job(self.entry.id, self.root)

  def test_damaged_results_are_reported_only_without_another(self):
    damaged = os.path.join(self.root, 'damaged')
    os.makedirs(damaged)
    with open(os.path.join(damaged, 'result.json'), 'w') as file:
      file.write('{')
    self.assertEqual(
      store_lib.find_job(self.entry.id, self.root), self.directory
    )
    with self.assertRaisesRegex(FileNotFoundError, 'no result of the harness'):
      store_lib.find_job('ffffffff', self.root)

  def test_a_result_that_is_being_replaced_does_not_count(self):
    jobs.write(os.path.join(self.root, 'a', 'server.previous'), self.entry)
    self.assertEqual(
      store_lib.find_job(self.entry.id, self.root), self.directory
    )


class LocksTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._path = os.path.join(self.create_tempdir().full_path, 'locks', 'a')

  def _other(self) -> subprocess.Popen:
    process = subprocess.Popen(
      [sys.executable, '-c', _HOLD, self._path],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)},
    )
    self.addCleanup(process.communicate)
    self.assertEqual(process.stdout.readline(), b'held\n')
    return process

  def test_lock_has_one_holder(self):
    self.assertIsNone(store_lib.lock_holder(self._path))
    with store_lib.hold_lock(self._path, 'it'):
      self.assertEqual(store_lib.lock_holder(self._path), os.getpid())
      with self.assertRaisesRegex(store_lib.Busy, f'process {os.getpid()}'):
        with store_lib.hold_lock(self._path, 'it'):
          self.fail('held twice')
    self.assertFalse(os.path.exists(self._path))
    with store_lib.hold_lock(self._path, 'it'):
      pass

  def test_lock_of_another_process_is_respected(self):
    other = self._other()
    self.assertEqual(store_lib.lock_holder(self._path), other.pid)
    with self.assertRaisesRegex(
      store_lib.Busy,
      f'it belongs to another job that is running .process {other.pid}.',
    ):
      with store_lib.hold_lock(self._path, 'it'):
        self.fail('held twice')

  def test_killed_process_releases_its_lock(self):
    other = self._other()
    other.send_signal(signal.SIGKILL)
    other.wait()
    self.assertTrue(os.path.exists(self._path))
    self.assertIsNone(store_lib.lock_holder(self._path))
    with store_lib.hold_lock(self._path, 'it'):
      self.assertEqual(store_lib.lock_holder(self._path), os.getpid())


if __name__ == '__main__':
  absltest.main()
