import io
import os
import sys
from unittest import mock

from absl.testing import absltest

from harness import children
from harness import local_cell
from harness import programs
from harness import progress as progress_lib

_SLEEP = 'import time; time.sleep(60)'


class LocalCellTest(absltest.TestCase):
  """Failures of the cell's programs, which are stood in for by trivial ones."""

  def _start(self, **codes: str) -> None:
    """Starts a cell whose programs run `codes`, by their last name."""

    def command(program, flags, env=None):
      self.assertEqual(env, {'SAX_DEBUG_IPADDR': '1'})
      self.assertEqual(flags['sax_cell'], local_cell.CELL)
      code = codes[os.path.basename(program)]
      return programs.Command((sys.executable, '-c', code), dict(os.environ))

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
      ).start()

  def test_config_that_cannot_be_written(self):
    with self.assertRaisesRegex(
        children.ChildError, 'the admin_config .* exit code 255(.|\n)*disk full'
    ):
      self._start(
          admin_config=(
              "import sys; print('disk full', file=sys.stderr); sys.exit(255)"
          )
      )

  def test_admin_server_that_ends(self):
    with self.assertRaisesRegex(
        children.ChildError, 'the admin server .*(.|\n)*port is taken'
    ):
      self._start(
          admin_config='',
          admin_server="raise SystemExit('port is taken')",
          server=_SLEEP,
      )

  def test_model_server_that_ends(self):
    with self.assertRaisesRegex(
        children.ChildError, 'the model server .* exit code 3'
    ):
      self._start(
          admin_config='', admin_server=_SLEEP, server='raise SystemExit(3)'
      )

  def test_servers_that_never_answer(self):
    with (
        mock.patch.object(local_cell, '_START_SECS', 1.0),
        mock.patch.object(local_cell, '_ANSWER_SECS', 0.2),
        self.assertRaisesRegex(
            local_cell.CellError, 'admin server was not ready after 1 s; .*logs'
        ),
    ):
      self._start(admin_config='', admin_server=_SLEEP, server=_SLEEP)


if __name__ == '__main__':
  absltest.main()
