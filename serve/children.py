"""Starts child processes, watches and restarts them, and always stops them.

Each child gets its own process group. Ctrl-C at the terminal therefore reaches
only the parent, which then stops the children in order. Each child is started
through guard.py, so it also dies if the parent is killed.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from typing import IO

from saxml_ext.common import errors
from serve import programs

_GUARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'guard.py')

# A server needs a moment to finish its last answers. SIGKILL follows after this
# many seconds.
GRACE_SECS = 5.0
_POLL_SECS = 0.05
_TAIL_LINES = 15


class ChildError(programs.ServeError):
  """An error: a child ended unexpectedly, or with an error."""


@dataclasses.dataclass(frozen=True)
class Child:
  """A started process.

  Attributes:
    name: The name in messages, such as "model server".
    process: The handle of the process.
    log_path: The path of the file that receives its output.
    command: The command that started it.
    files: The numbers of the open files that it inherited.
  """

  name: str
  process: subprocess.Popen
  log_path: str
  command: programs.Command
  files: Sequence[int] = ()

  @property
  def ending(self) -> str:
    """The kind of its end, such as "exit code 1" or "signal SIGKILL"."""
    code = self.process.returncode
    if code is None:
      return 'still running'
    if code < 0:
      return f'signal {signal.Signals(-code).name}'
    return f'exit code {code}'

  def error(self) -> ChildError:
    """Returns an error for its unexpected end, with the end of its log."""
    log = ''
    if self.log_path:
      log = f'. Its log is {self.log_path}{_indented_tail(self.log_path)}'
    return ChildError(
      f'the {self.name} (process {self.process.pid}) ended with'
      f' {self.ending}{log}'
    )


def last_lines(path: str) -> list[str]:
  """Returns the last non-empty lines of a log, or none without a log."""
  try:
    with open(path, 'rb') as file:
      file.seek(0, os.SEEK_END)
      file.seek(max(0, file.tell() - 16384))
      text = file.read().decode('utf-8', 'replace')
  except FileNotFoundError:
    return []
  return [line for line in text.splitlines() if line.strip()][-_TAIL_LINES:]


def _indented_tail(path: str) -> str:
  lines = last_lines(path)
  return ':' + ''.join(f'\n    {line}' for line in lines) if lines else ''


class Children:
  """Starts processes and stops them all at the end of a `with` block.

  Use it from the main thread. The kernel treats the parent of a process as gone
  when the thread that started the process ends.
  """

  def __init__(self, grace_secs: float = GRACE_SECS):
    """Sets the grace period.

    Args:
      grace_secs: The time between SIGTERM and SIGKILL, in seconds.
    """
    self._grace_secs = grace_secs
    self._watched: list[Child] = []
    self._started: list[Child] = []

  def __enter__(self) -> 'Children':
    return self

  def __exit__(self, *unused) -> None:
    self.stop()

  def start(
    self,
    name: str,
    command: programs.Command,
    log_path: str,
    files: Sequence[int] = (),
  ) -> Child:
    """Starts a process that must run until it is stopped.

    Args:
      name: The name in messages.
      command: The command that starts it.
      log_path: The path of the file that receives its output.
      files: The numbers of the open files that it inherits. They must stay open
        until its last start.
    """
    self._watched.append(self._start(name, command, log_path, files=files))
    return self._watched[-1]

  def restart(self, child: Child) -> Child:
    """Starts a watched process again after its end; appends to its log."""
    self._watched.remove(child)
    self._started.remove(child)
    self._watched.append(
      self._start(
        child.name, child.command, child.log_path, mode='ab', files=child.files
      )
    )
    return self._watched[-1]

  def start_piped(
    self, name: str, command: programs.Command, log_path: str
  ) -> Child:
    """Starts a process that ends by itself, with its output as a pipe.

    The log receives its standard error. The reader of the pipe may append to
    the log.
    """
    return self._start(name, command, log_path, subprocess.PIPE)

  def _start(
    self,
    name: str,
    command: programs.Command,
    log_path: str,
    stdout: int | None = None,
    mode: str = 'wb',
    files: Sequence[int] = (),
  ) -> Child:
    with contextlib.ExitStack() as stack:
      log = None  # The output goes to this program's terminal.
      if log_path:
        os.makedirs(os.path.dirname(log_path), exist_ok=True)
        log = stack.enter_context(open(log_path, mode, buffering=0))
      process = subprocess.Popen(
        [sys.executable, '-I', '-S', _GUARD, str(os.getpid()), *command.argv],
        stdin=subprocess.DEVNULL,
        stdout=log if stdout is None else stdout,
        stderr=log,
        env=dict(command.env),
        process_group=0,
        pass_fds=files,
      )
    child = Child(name, process, log_path, command, files)
    self._started.append(child)
    return child

  def run(self, name: str, command: programs.Command, log_path: str) -> None:
    """Runs a process to its end while watching the others.

    Args:
      name: The name in messages.
      command: The command that starts it.
      log_path: The path of the file that receives its output; with '' the
        output goes to the terminal.

    Raises:
      ChildError: The process failed, or another one ended.
    """
    child = self._start(name, command, log_path)
    while child.process.poll() is None:
      self.check()
      time.sleep(_POLL_SECS)
    if child.process.returncode != 0:
      raise child.error()

  def ended(self) -> list[Child]:
    """Returns the watched processes that have ended."""
    return [c for c in self._watched if c.process.poll() is not None]

  def check(self) -> None:
    """Checks that the watched processes are running.

    Raises:
      ChildError: A watched process has ended.
    """
    for child in self.ended():
      raise child.error()

  def stop(self) -> None:
    """Stops all processes, the latest first, and waits for their ends.

    A second signal ends the grace period.
    """
    with _signals() as hurried:
      self._stop(hurried)

  def _stop(self, hurried: list[int]) -> None:
    for child in reversed(self._started):
      _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + self._grace_secs
    for child in reversed(self._started):
      while child.process.poll() is None and not hurried:
        if time.monotonic() >= deadline:
          break
        time.sleep(_POLL_SECS)
      # The group is killed even if the child has ended, because the child may
      # have left children of its own.
      _signal_group(child, signal.SIGKILL)
      child.process.wait()
      if child.process.stdout is not None:
        child.process.stdout.close()
    self._started.clear()
    self._watched.clear()


def run_stoppable(name: str, run: Callable[[], None], stopped: int) -> int:
  """Runs a program until it ends, fails, or is stopped by a signal.

  Args:
    name: The name of the program, for messages.
    run: The function that runs the program.
    stopped: The exit code after a signal.

  Returns:
    The exit code.
  """
  for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.default_int_handler)
  try:
    run()
  except KeyboardInterrupt:
    print(f'{name}: stopped', file=sys.stderr, flush=True)
    return stopped
  except (programs.ServeError, errors.SaxError, OSError) as e:
    print(f'{name}: {e}', file=sys.stderr, flush=True)
    return 1
  return 0


def output(child: Child) -> IO[bytes]:
  """Returns the standard output of a child that was started with a pipe."""
  if child.process.stdout is None:
    raise ValueError(f'the {child.name} was not started with a pipe')
  return child.process.stdout


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
  """Collects the signals that would otherwise interrupt the block."""
  numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
  got: list[int] = []
  before = [
    signal.signal(number, lambda number, _: got.append(number))
    for number in numbers
  ]
  try:
    yield got
  finally:
    for number, handler in zip(numbers, before):
      signal.signal(number, handler)


def _signal_group(child: Child, number: signal.Signals) -> None:
  with contextlib.suppress(ProcessLookupError):  # It has already ended.
    os.killpg(child.process.pid, number)
