import os
import signal
import socket
import subprocess
import sys
import time

from absl.testing import absltest

from serve import children
from serve import programs

_SLEEP = 'import time; time.sleep(600)'
# This program ignores SIGTERM, starts a child, and prints the child's id.
_STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
# This program answers one connection to an inherited socket.
_ACCEPT = """
import socket
connection, _ = socket.socket(fileno={}).accept()
connection.sendall(b"hello")
"""


def _python(code: str) -> programs.Command:
  return programs.Command((sys.executable, '-c', code), dict(os.environ))


def _alive(pid: int) -> bool:
  """Returns True if a process runs; a zombie does not count."""
  try:
    with open(f'/proc/{pid}/stat', encoding='utf-8') as file:
      return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
  except (FileNotFoundError, ProcessLookupError):
    return False


def _wait_until(condition, seconds: float = 100.0) -> bool:
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    if condition():
      return True
    time.sleep(0.05)
  return condition()


class ChildrenTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._log = os.path.join(self.create_tempdir().full_path, 'child.log')

  def _log_text(self) -> str:
    with open(self._log, encoding='utf-8') as file:
      return file.read()

  def test_a_restarted_child_accepts_connections_that_wait(self):
    with (
      socket.create_server(('127.0.0.1', 0)) as listener,
      children.Children() as group,
    ):
      number = listener.fileno()
      child = group.start(
        'server', _python(_ACCEPT.format(number)), self._log, [number]
      )
      for _ in range(2):
        with socket.create_connection(listener.getsockname(), 60) as connection:
          self.assertEqual(connection.recv(9), b'hello')
        child.process.wait()
        # This connection is made while no child runs.
        with socket.create_connection(listener.getsockname(), 60) as connection:
          child = group.restart(child)
          self.assertEqual(connection.recv(9), b'hello')
        child.process.wait()
        child = group.restart(child)

  def test_end_of_the_block_stops_children(self):
    with children.Children() as group:
      child = group.start('sleeper', _python(_SLEEP), self._log)
      group.check()
      self.assertTrue(_alive(child.process.pid))
    self.assertFalse(_alive(child.process.pid))

  def test_error_stops_children(self):
    with self.assertRaises(KeyboardInterrupt):
      with children.Children() as group:
        child = group.start('sleeper', _python(_SLEEP), self._log)
        raise KeyboardInterrupt
    self.assertFalse(_alive(child.process.pid))

  def test_hanging_child_and_its_children_are_killed(self):
    with children.Children() as group:
      child = group.start('stubborn', _python(_STUBBORN), self._log)
      self.assertTrue(_wait_until(lambda: self._log_text().endswith('\n')))
      grandchild = int(self._log_text())
      self.assertTrue(_alive(grandchild))
    # It did not end by itself.
    self.assertEqual(child.process.returncode, -signal.SIGKILL)
    self.assertTrue(_wait_until(lambda: not _alive(grandchild)))

  def test_unexpected_end_is_reported(self):
    code = "import sys; print('the reason', file=sys.stderr); sys.exit(3)"
    with children.Children() as group:
      child = group.start('model server', _python(code), self._log)
      child.process.wait()
      with self.assertRaisesRegex(
        children.ChildError, 'model server .* exit code 3(.|\n)*the reason'
      ):
        group.check()

  def test_fatal_signal_is_named(self):
    with children.Children() as group:
      child = group.start('model server', _python(_SLEEP), self._log)
      child.process.kill()
      child.process.wait()
      with self.assertRaisesRegex(children.ChildError, 'signal SIGKILL'):
        group.check()

  def test_run_waits_and_reports_failure(self):
    with children.Children() as group:
      group.run('good', _python("print('done')"), self._log)
      self.assertEqual(self._log_text(), 'done\n')
      with self.assertRaisesRegex(children.ChildError, 'the bad .* code 1'):
        group.run('bad', _python('raise SystemExit(1)'), self._log)
      group.check()  # A program that ran to its end causes no error.

  def test_run_ends_when_a_server_does(self):
    with children.Children() as group:
      server = group.start('server', _python(_SLEEP), self._log)
      server.process.kill()
      with self.assertRaisesRegex(children.ChildError, 'the server'):
        group.run('other', _python(_SLEEP), self._log + '.other')

  def test_dies_with_a_killed_parent(self):
    # The harness may be killed in this way, without a chance to stop its child.
    code = (
      'import sys, time\n'
      'from serve import children, children_test\n'
      'group = children.Children()\n'
      "child = group.start('sleeper',"
      ' children_test._python(children_test._SLEEP), sys.argv[1])\n'
      'print(child.process.pid, flush=True)\n'
      'time.sleep(600)\n'
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    parent = subprocess.Popen(
      [sys.executable, '-c', code, self._log], stdout=subprocess.PIPE, env=env
    )
    with parent:
      pid = int(parent.stdout.readline())
      self.assertTrue(_wait_until(lambda: _alive(pid)))
      parent.send_signal(signal.SIGKILL)
      parent.wait()
    self.assertTrue(_wait_until(lambda: not _alive(pid)))


if __name__ == '__main__':
  absltest.main()
