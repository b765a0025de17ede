import os
import signal
import sys

from absl.testing import absltest

from serve import children
from serve import programs
from tests.chaos import processes
from tests.groups import supervised

_SLEEP = 'import time; print("here", flush=True); time.sleep(600)'


class SupervisedTest(absltest.TestCase):
  def _start(self, code: str) -> supervised.Supervised:
    group = self.enter_context(children.Children())
    return supervised.Supervised(
      group,
      'program',
      programs.Command((sys.executable, '-c', code), dict(os.environ)),
      self.create_tempdir().full_path,
    )

  def _wait_for_output(
    self, program: supervised.Supervised, count: int
  ) -> None:
    processes.wait(lambda: program.log.read_text().count('here') == count)

  def test_killed_program_is_restarted(self):
    program = self._start(_SLEEP)
    for count in (1, 2, 3):
      self._wait_for_output(program, count)
      self.assertEqual(program.starts, count)
      self.assertTrue(program.send(signal.SIGKILL))
    self.assertIn('ended with -9', program.log.read_text())

  def test_ended_program_is_restarted(self):
    program = self._start('raise SystemExit("told")')
    processes.wait(lambda: program.starts > 2)
    self.assertIn('told', program.log.read_text())

  def test_no_process_is_left_at_the_end(self):
    with children.Children() as group:
      program = supervised.Supervised(
        group,
        'program',
        programs.Command((sys.executable, '-c', _SLEEP), dict(os.environ)),
        self.create_tempdir().full_path,
      )
      self._wait_for_output(program, 1)
    processes.wait(lambda: not program.running)
    self.assertEqual(program.starts, 1)


if __name__ == '__main__':
  absltest.main()
