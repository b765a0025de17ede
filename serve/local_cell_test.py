from collections.abc import Callable
import io
import os
import sys
from unittest import mock

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell
from saxml_ext.protobuf import common_pb2
from serve import children
from serve import local_cell
from serve import programs
from serve import progress as progress_lib

_SLEEP = 'import time; time.sleep(600)'


class LocalCellTest(absltest.TestCase):
  """Tests failures of the cell's programs, with trivial programs instead."""

  def _start(self, hosts: int = 1, **codes: str) -> None:
    """Starts a cell; `codes` maps each program's name to the code to run."""

    def command(program, flags, env):
      self.assertEqual(env.pop('SAX_DEBUG_IPADDR'), '1')
      self.assertEqual(flags['sax_cell'], local_cell.CELL)
      code = codes[os.path.basename(program)]
      process = str(flags.get('process_id'))
      if process != 'None':
        self.assertEqual(flags['num_processes'], hosts)
        self.assertEqual(env.get('JAX_PLATFORMS', 'cpu'), 'cpu')
      return programs.Command(
        (sys.executable, '-c', code, process), dict(os.environ)
      )

    self._work_dir = self.create_tempdir().full_path
    with (
      mock.patch.object(programs, 'command', command),
      children.Children() as group,
    ):
      local_cell.LocalCell(
        group,
        self._work_dir,
        os.path.join(self._work_dir, 'logs'),
        None,
        progress_lib.Progress(io.StringIO()),
        hosts=hosts,
      ).start()

  def test_admin_server_that_ends(self):
    with self.assertRaisesRegex(
      children.ChildError, 'the admin server .*(.|\n)*port is taken'
    ):
      self._start(
        admin_server="raise SystemExit('port is taken')",
        server=_SLEEP,
      )

  def test_model_server_that_ends(self):
    with self.assertRaisesRegex(
      children.ChildError, 'the model server .* exit code 3'
    ):
      self._start(admin_server=_SLEEP, server='raise SystemExit(3)')

  def test_process_of_a_group_that_ends(self):
    """Checks that each process of a group is watched and has its own log."""
    with self.assertRaisesRegex(
      children.ChildError,
      r'model server, process 2 .*code 3(.|\n)*model_server_2\.log(.|\n)*am 2',
    ):
      self._start(
        hosts=3,
        admin_server=_SLEEP,
        server=(
          'import sys\n'
          f"if sys.argv[1] != '2': {_SLEEP}\n"
          "print('I am', sys.argv[1])\n"
          'sys.exit(3)'
        ),
      )

  def test_servers_that_never_answer(self):
    with (
      mock.patch.object(local_cell, '_START_SECS', 1.0),
      mock.patch.object(local_cell, '_ANSWER_SECS', 0.2),
      self.assertRaisesRegex(
        local_cell.CellError, 'admin server was not ready after 1 s. .*logs'
      ),
    ):
      self._start(admin_server=_SLEEP, server=_SLEEP)


class PublishTest(absltest.TestCase):
  """Tests the reports of the admin server for a model that is loading."""

  def setUp(self):
    super().setUp()
    directory = self.create_tempdir().full_path
    self._cell = fake_cell.FakeCell(directory)
    self.addCleanup(self._cell.stop)
    sax.SetRoot(self._cell.root)
    self.enter_context(mock.patch.object(local_cell, 'CELL', fake_cell.CELL))
    self.enter_context(mock.patch.object(local_cell, '_ANSWER_SECS', 0.2))
    self.enter_context(mock.patch.object(local_cell, '_READY_SECS', 60.0))
    group = self.enter_context(children.Children())
    self._local = local_cell.LocalCell(
      group, directory, directory, None, progress_lib.Progress(io.StringIO())
    )
    self._model_id = f'{fake_cell.CELL}/n'

  def _publish(self, then: Callable[[], None]) -> str:
    """Publishes a model; calls `then` when the admin server knows the model."""
    published = sax.Publish

    def publish(*args):
      published(*args)
      then()

    model = local_cell.Model('n', 'p.A', '/ckpt', {})
    with mock.patch.object(sax, 'Publish', publish):
      return self._local.publish(model)

  def test_returns_once_a_replica_is_ready(self):
    model_id = self._publish(
      lambda: self._cell.admin.add_address(self._model_id, 'a:1')
    )
    self.assertEqual(model_id, self._model_id)

  def test_failed_load_has_a_reason(self):
    def fail():
      self._cell.admin.models[self._model_id].replicas.add(
        address='a:1',
        status=common_pb2.ModelStatus.FAILED,
        reason='/ckpt holds no checkpoint',
      )

    with self.assertRaisesRegex(
      local_cell.CellError,
      'could not load /sax/test/n: /ckpt holds no checkpoint. .*model_server',
    ):
      self._publish(fail)

  def test_endless_load_times_out(self):
    with (
      mock.patch.object(local_cell, '_READY_SECS', 0.5),
      self.assertRaisesRegex(
        local_cell.CellError, 'not ready after 0.5 s. See the logs'
      ),
    ):
      self._publish(lambda: None)


class ServerGroupTest(absltest.TestCase):
  def test_one_process_is_no_group(self):
    self.assertEqual(local_cell.group_flags(1), [{}])
    self.assertEqual(local_cell.group_environment(1, {}), {})
    self.assertEqual(local_cell.group_overrides(1, {'A': '1'}, {}), {'A': '1'})

  def test_processes_know_one_coordinator_and_their_ids(self):
    flags = local_cell.group_flags(3)
    self.assertEqual([process['process_id'] for process in flags], [0, 1, 2])
    self.assertEqual({process['num_processes'] for process in flags}, {3})
    [address] = {process['coordinator_address'] for process in flags}
    self.assertRegex(address, r'^127\.0\.0\.1:\d+$')

  def test_processes_share_no_accelerator(self):
    self.assertEqual(
      local_cell.group_environment(2, {}), {'JAX_PLATFORMS': 'cpu'}
    )
    self.assertEqual(
      local_cell.group_environment(2, {'JAX_PLATFORMS': 'cuda'}), {}
    )

  def test_requests_are_split_among_all_devices(self):
    self.assertEqual(
      local_cell.group_overrides(2, {'A': '1'}, {}),
      {'A': '1', 'ICI_MESH_SHAPE': '[1, 2, 1]'},
    )
    four = local_cell.group_overrides(2, {}, {'JAX_NUM_CPU_DEVICES': '2'})
    self.assertEqual(four, {'ICI_MESH_SHAPE': '[1, 4, 1]'})

  def test_given_mesh_is_kept(self):
    own = {'ICI_MESH_SHAPE': '[1,2,1]'}
    self.assertEqual(local_cell.group_overrides(2, own, {}), own)

  def test_invalid_number_of_devices_is_refused(self):
    for text in ('two', '0', '-1'):
      with self.assertRaisesRegex(
        ValueError, f'JAX_NUM_CPU_DEVICES={text} is not'
      ):
        local_cell.group_overrides(2, {}, {'JAX_NUM_CPU_DEVICES': text})


if __name__ == '__main__':
  absltest.main()
