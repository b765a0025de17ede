"""Runs programs that are restarted whenever they end, as on real hosts."""

import os
import pathlib
import sys

from serve import children
from serve import programs

_SUPERVISE = pathlib.Path(__file__).with_name('supervise.py')
_GUARD = pathlib.Path(children.__file__).with_name('guard.py')
# This line in the log means that a process reported the end of its work.
ENDED_WITH_0 = 'ended with 0\n'
# The pause before a restart. It is shorter than RestartSec in deploy/systemd,
# which would be too slow for tests.
_PAUSE_SECS = 0.5


class Supervised:
  """A program with its own supervisor.

  Attributes:
    name: The name in messages.
    log: The path of the file that receives the output of all its processes.
  """

  def __init__(
    self,
    group: children.Children,
    name: str,
    command: programs.Command,
    directory: str,
    prefix: tuple[str, ...] = (),
  ):
    """Starts the program.

    Args:
      group: The object that owns the supervisor, and thus the program.
      name: The name in messages.
      command: The command that starts the program.
      directory: The directory for its log and a file of its starts.
      prefix: The words before the command line, for example to enter another
        host.
    """
    self.name = name
    self.log = pathlib.Path(directory, f'{name}.log')
    self._starts = pathlib.Path(directory, f'{name}.starts')
    self._starts.touch()
    supervise = [sys.executable, str(_SUPERVISE), str(_GUARD)]
    words = [str(self._starts), str(_PAUSE_SECS), *command.argv]
    group.start(
      f'supervisor of {name}',
      programs.Command((*prefix, *supervise, *words), command.env),
      str(self.log),
    )

  @property
  def starts(self) -> int:
    """The number of starts so far."""
    return len(self._pids())

  @property
  def running(self) -> bool:
    """True if the process runs now, or is stopped by a signal."""
    return self.send(0)

  def send(self, number: int) -> bool:
    """Sends a signal to the process; returns False if there is none."""
    pids = self._pids()
    if not pids:
      return False
    try:
      os.kill(pids[-1], number)
    except ProcessLookupError:
      return False
    return True

  def _pids(self) -> list[int]:
    # The last line may be incomplete.
    text = self._starts.read_text(encoding='ascii').rpartition('\n')[0]
    return [int(line) for line in text.split()]
