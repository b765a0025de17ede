import os
import signal
import subprocess
import sys

from absl.testing import absltest

from harness.results import locks

_HOLD = """
import sys
from harness.results import locks
with locks.held(sys.argv[1], 'it'):
  print('held', flush=True)
  sys.stdin.read()
"""


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

  def test_one_holds_it(self):
    self.assertIsNone(locks.holder(self._path))
    with locks.held(self._path, 'it'):
      self.assertEqual(locks.holder(self._path), os.getpid())
      with self.assertRaisesRegex(locks.Busy, f'process {os.getpid()}'):
        with locks.held(self._path, 'it'):
          self.fail('held twice')
    self.assertFalse(os.path.exists(self._path))
    with locks.held(self._path, 'it'):
      pass

  def test_another_process_holds_it(self):
    other = self._other()
    self.assertEqual(locks.holder(self._path), other.pid)
    with self.assertRaisesRegex(
      locks.Busy, f'it is being made by another job .process {other.pid}.'
    ):
      with locks.held(self._path, 'it'):
        self.fail('held twice')

  def test_a_killed_process_holds_nothing(self):
    other = self._other()
    other.send_signal(signal.SIGKILL)
    other.wait()
    self.assertTrue(os.path.exists(self._path))
    self.assertIsNone(locks.holder(self._path))
    with locks.held(self._path, 'it'):
      self.assertEqual(locks.holder(self._path), os.getpid())


if __name__ == '__main__':
  absltest.main()
