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
  """Replaces a power failure."""


class _CrashingDir(shared_dir.LocalDir):
  """A directory that crashes before its n-th write."""

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

  def test_stock_reader_reads_the_models(self):
    files = self.files()
    files.take_over()
    files.save(self.state(3))
    read = admin_pb2.State.FromString((self.path / 'state.proto').read_bytes())
    self.assertEqual(list(read.models), state_mutants.models(3))

  @parameterized.parameters(0, 1, 2, 3)
  def test_crash_between_writes_keeps_changes_whole(self, writes):
    self.crash(writes)
    restored = self.files().take_over()
    self.assertLen(restored.models, 3 if writes == 3 else 2)
    self.assertEmpty(list(self.path.glob('*.bad-*')))

  @parameterized.parameters(0, 1, 2, 3)
  def test_damage_after_a_crash_loses_no_acknowledged_change(self, writes):
    self.crash(writes)
    self.damage()
    # The copy is written second, so it may have a change that was not
    # acknowledged.
    self.assertLen(self.files().take_over().models, 2 if writes < 2 else 3)

  def crash(self, writes: int) -> None:
    """Crashes after `writes` writes of a change from 2 to 3 models."""
    files = self.files(_CrashingDir)
    files.take_over()
    files.save(self.state(2))
    self.directory.left = writes
    with self.assertRaises(_Crash):
      files.save(self.state(3))
      self.assertEqual(writes, 3)  # Otherwise, the save itself must crash.
      raise _Crash()

  def test_copy_has_each_acknowledged_change_at_once(self):
    files = self.files()
    files.take_over()
    for count in (2, 3, 4, 5):
      files.save(self.state(count))
    self.damage()
    self.assertLen(self.files().take_over().models, 5)
    self.assertLen(list(self.path.glob('*.bad-*')), 1)

  def test_failed_change_can_be_repeated(self):
    files = self.files(_CrashingDir)
    files.take_over()
    files.save(self.state(2))
    for _ in range(2):
      self.directory.left = 2  # It allows the sums and the copy.
      with self.assertRaises(_Crash):
        files.save(self.state(3))
    self.directory.left = 10**9
    self.assertLen(self.files().take_over().models, 2)

  def test_copy_stays_good_through_a_crash_of_the_next_leader(self):
    files = self.files()
    files.take_over()
    files.save(self.state(4))
    for writes in range(3):
      crashing = self.files(_CrashingDir)
      self.directory.left = writes
      with self.assertRaises(_Crash):
        crashing.take_over()
    self.damage()
    self.assertLen(self.files().take_over().models, 4)

  def damage(self) -> None:
    (self.path / 'state.proto').write_bytes(b'\0' * 100)

  def test_state_of_a_stock_admin_server_is_read(self):
    files = self.files()
    files.take_over()
    files.save(self.state(3))
    for count in (4, 1):
      stock = self.state(count)
      # The order differs, because stock files have a random order.
      models = list(reversed(stock.models))
      models[0].checkpoint_path = '/other'
      (self.path / 'state.proto').write_bytes(
        admin_pb2.State(models=models).SerializeToString()
      )
      restored = self.files().take_over()
      self.assertEqual(list(restored.models), models)
    self.assertEmpty(list(self.path.glob('*.bad-*')))

  def test_first_start_and_start_after_a_stock_admin_server(self):
    self.assertEmpty(self.files().take_over().models)
    for path in self.path.glob('state.*'):
      path.unlink()
    (self.path / 'state.proto').write_bytes(self.state(2).SerializeToString())
    self.assertLen(self.files().take_over().models, 2)

  @parameterized.parameters(
    (('state.proto', 'state.proto.prev'),),
    (('state.proto', 'state.proto.prev', 'state.proto.sum'),),
  )
  def test_refuses_to_start_without_a_good_copy(self, names):
    files = self.files()
    files.take_over()
    files.save(self.state(2))
    good = (self.path / 'state.proto').read_bytes()
    for damage in (b'\xff\xff', b''):
      for name in names:
        (self.path / name).write_bytes(damage)
      for _ in range(3):  # A supervisor restarts it.
        with self.assertRaisesRegex(errors.DataLoss, 'delete all three files'):
          self.files().take_over()
      for name in names:
        kept = list(self.path.glob(f'{name}.bad-*'))
        self.assertIn(damage, [p.read_bytes() for p in kept])
        self.assertLessEqual(len(kept), 2)
    # The test follows the remedy in the message.
    (self.path / 'state.proto').write_bytes(good)
    (self.path / 'state.proto.sum').unlink()
    self.assertLen(self.files().take_over().models, 2)

  def test_missing_copies_are_no_empty_cell(self):
    files = self.files()
    files.take_over()
    files.save(self.state(2))
    for name in ('state.proto', 'state.proto.prev'):
      (self.path / name).unlink()
    with self.assertRaisesRegex(errors.DataLoss, 'damaged or missing'):
      self.files().take_over()
    (self.path / 'state.proto.sum').unlink()
    self.assertEmpty(self.files().take_over().models)

  def test_former_leader_is_refused(self):
    old = self.files()
    old.take_over()
    new = self.files()
    new.take_over()
    new.save(self.state(1))
    with self.assertRaises(errors.Aborted):
      old.save(self.state(2))
    self.assertLen(self.files().take_over().models, 1)

  def test_mutated_files_are_detected(self):
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
