"""Runs `serve` in tests, as a user does."""

import os
import signal
import subprocess
import time

from absl.testing import absltest

from serve import programs

# Without other load, a start takes seconds. A busy machine may need a hundred
# times that.
_START_SECS = 1500.0


def wait_until(condition, what: str) -> None:
  """Waits for a condition; `what` is the event in the message of a timeout."""
  deadline = time.monotonic() + _START_SECS
  while not condition():
    if time.monotonic() > deadline:
      raise AssertionError(f'{what} did not happen within {_START_SECS:g} s')
    time.sleep(0.1)


class ServeCase(absltest.TestCase):
  """A test case with one `serve`, whose output is `text`."""

  def setUp(self):
    super().setUp()
    # A test runner may ignore Ctrl-C, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    self.cache = self.create_tempdir().full_path
    self._log = os.path.join(self.cache, 'log')

  def command(self, program: str, *words: str, **flags):
    """Returns the arguments and the environment of a program."""
    environment = {'GPTJ_SAX_CACHE': self.cache}
    command = programs.command(program, flags, environment)
    return (*command.argv, *words), dict(command.env)

  def run_program(
    self, program: str, *words: str, **flags
  ) -> subprocess.CompletedProcess:
    """Runs a program to its end, without input."""
    argv, env = self.command(program, *words, **flags)
    return subprocess.run(
      argv,
      env=env,
      stdin=subprocess.DEVNULL,
      capture_output=True,
      text=True,
      check=False,
    )

  def start(self, *words: str, **flags) -> str:
    """Starts `serve`, waits until it is ready, and returns its port."""
    argv, env = self.command(programs.SERVE, *words, port=0, **flags)
    with open(self._log, 'wb') as log:
      self.serve = subprocess.Popen(argv, env=env, stdout=log, stderr=log)
    self.addCleanup(self.serve.wait)
    self.addCleanup(self.serve.send_signal, signal.SIGINT)
    wait_until(
      lambda: 'Ready: ' in self.text or self.serve.poll() is not None, 'ready'
    )
    self.assertIsNone(self.serve.poll(), self.text)
    return self.text.rpartition(':')[2].strip()

  @property
  def text(self) -> str:
    """The output of `serve` so far."""
    with open(self._log, encoding='utf-8') as file:
      return file.read()
