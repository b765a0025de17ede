"""Programs that are started again whenever they end, as on real hosts."""

import os
import pathlib
import sys

from serve import children
from serve import programs

_SUPERVISE = pathlib.Path(__file__).with_name('supervise.py')
_GUARD = pathlib.Path(children.__file__).with_name('guard.py')
# In the log, where a process told that it has done its work.
ENDED_WITH_0 = 'ended with 0\n'
# As systemd's RestartSec of deploy/systemd, but for tests' patience.
_PAUSE_SECS = 0.5


class Supervised:
  """A program under a supervisor of its own.

  Attributes:
    name: The name in messages.
    log: The file that gets the output of all its processes.
  """

  def __init__(
    self,
    group: children.Children,
    name: str,
    command: programs.Command,
    directory: str,
    prefix: tuple[str, ...] = (),
  ):
    """Starts it.

    Args:
      group: The object that owns the supervisor, and with it the program.
      name: The name in messages.
      command: The command that starts the program.
      directory: The directory that gets its log and a file of its starts.
      prefix: The words before the command line, for example those that enter
        another host.
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
    """The number of times that it was started."""
    return len(self._pids())

  @property
  def running(self) -> bool:
    """True if it runs now, or is stopped by a signal."""
    return self.send(0)

  def send(self, number: int) -> bool:
    """Sends a signal to its process; False if there is none just now."""
    pids = self._pids()
    if not pids:
      return False
    try:
      os.kill(pids[-1], number)
    except ProcessLookupError:
      return False
    return True

  def _pids(self) -> list[int]:
    # A line may be half written.
    text = self._starts.read_text(encoding='ascii').rpartition('\n')[0]
    return [int(line) for line in text.split()]
