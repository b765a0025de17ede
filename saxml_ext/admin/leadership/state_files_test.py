"""Tests of the state on disk."""

import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.admin.leadership import shared_dir
from saxml_ext.admin.leadership import state_files
from saxml_ext.admin.testing import state_mutants
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2

_CELL = state_mutants.CELL


class _Crash(Exception):
  """Instead of a power cut."""


class _CrashingDir(shared_dir.LocalDir):
  """Crashes before its n-th write."""

  left = 10**9

  def write(self, name, data, epoch):
    if not self.left:
      raise _Crash()
    self.left -= 1
    super().write(name, data, epoch)


class StateFilesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path)
    self.epoch = 0

  def files(self, cls=shared_dir.LocalDir) -> state_files.StateFiles:
    self.epoch += 1
    self.directory = cls(os.fspath(self.path))
    self.assertTrue(self.directory.claim(self.epoch, 'a'))
    return state_files.StateFiles(self.directory, _CELL, self.epoch)

  def state(self, count: int) -> admin_pb2.State:
    return admin_pb2.State(models=state_mutants.models(count))

  def test_a_stock_reader_finds_the_models(self):
    files = self.files()
    files.take_over()
    files.save(self.state(3))
    read = admin_pb2.State.FromString((self.path / 'state.proto').read_bytes())
    self.assertEqual(list(read.models), state_mutants.models(3))

  @parameterized.parameters(0, 1, 2)
  def test_crash_between_writes_leaves_all_or_nothing(self, writes):
    files = self.files(_CrashingDir)
    files.take_over()
    files.save(self.state(2))
    files.settle()
    self.directory.left = writes
    with self.assertRaises(_Crash):
      files.save(self.state(3))
      self.assertEqual(writes, 2)  # Else the save itself was to crash.
      files.settle()
    found = self.files().take_over()
    self.assertLen(found.models, 3 if writes == 2 else 2)
    self.assertEmpty(list(self.path.glob('*.bad-*')))

  @parameterized.parameters(0, 1, 2)
  def test_damage_after_a_crash_costs_what_was_not_copied_at_most(self, writes):
    files = self.files(_CrashingDir)
    files.take_over()
    files.save(self.state(2))
    files.settle()
    self.directory.left = writes
    with self.assertRaises(_Crash):
      files.save(self.state(3))
      files.settle()
    self.damage()
    self.assertLen(self.files().take_over().models, 2)

  def test_copy_stays_good_however_often_the_state_is_saved(self):
    files = self.files()
    files.take_over()
    files.save(self.state(2))
    files.settle()
    for count in (3, 4, 5):
      files.save(self.state(count))  # A burst; the copy comes later.
    self.damage()
    self.assertLen(self.files().take_over().models, 2)
    self.assertLen(list(self.path.glob('*.bad-*')), 1)

  def test_copy_stays_good_through_a_crash_of_the_next_leader(self):
    files = self.files()
    files.take_over()
    files.save(self.state(2))
    files.settle()
    files.save(self.state(3))
    files.save(self.state(4))
    crashing = self.files(_CrashingDir)
    self.directory.left = 2  # Sums and state, but not the copy.
    with self.assertRaises(_Crash):
      crashing.take_over()
    self.damage()
    self.assertLen(self.files().take_over().models, 2)

  def damage(self) -> None:
    (self.path / 'state.proto').write_bytes(b'\0' * 100)

  def test_what_a_stock_admin_server_wrote_counts(self):
    files = self.files()
    files.take_over()
    files.save(self.state(3))
    files.settle()
    for count in (4, 1):
      stock = self.state(count)
      # In another order, as theirs is random.
      models = list(reversed(stock.models))
      models[0].checkpoint_path = '/other'
      (self.path / 'state.proto').write_bytes(
        admin_pb2.State(models=models).SerializeToString()
      )
      found = self.files().take_over()
      self.assertEqual(list(found.models), models)
    self.assertEmpty(list(self.path.glob('*.bad-*')))

  def test_first_start_and_start_after_a_stock_admin_server(self):
    self.assertEmpty(self.files().take_over().models)
    for path in self.path.glob('state.*'):
      path.unlink()
    (self.path / 'state.proto').write_bytes(self.state(2).SerializeToString())
    self.assertLen(self.files().take_over().models, 2)

  def test_no_good_copy_is_no_reason_not_to_start(self):
    files = self.files()
    files.take_over()
    files.save(self.state(2))
    files.settle()
    for name in ('state.proto', 'state.proto.prev', 'state.proto.sum'):
      (self.path / name).write_bytes(b'\xff\xff')
    with self.assertLogs(level='ERROR'):
      self.assertEmpty(self.files().take_over().models)
    self.assertLen(list(self.path.glob('*.bad-*')), 3)

  def test_former_leader_is_refused(self):
    old = self.files()
    old.take_over()
    new = self.files()
    new.take_over()
    new.save(self.state(1))
    with self.assertRaises(errors.Aborted):
      old.save(self.state(2))
    self.assertLen(self.files().take_over().models, 1)

  def test_mutants(self):
    with self.assertLogs(level='WARNING') as logs:

      def logged() -> str:
        text = '\n'.join(logs.output)
        logs.output.clear()
        return text

      results = state_mutants.run(self.path, 180, logged)
      logs.output.append('none')
    for what, result in results.items():
      self.assertEqual(result.good, result.mutants, what)
      self.assertEqual(result.named, result.mutants, what)
    self.assertGreater(sum(r.mutants for r in results.values()), 150)


if __name__ == '__main__':
  absltest.main()
