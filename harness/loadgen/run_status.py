"""What a LoadGen process tells the harness, one line of its output each.

LoadGen itself also prints to standard output, so the lines are marked.
"""

import dataclasses
import json
import os

_MARK = '::run:: '


@dataclasses.dataclass(frozen=True)
class RunStatus:
  """State of a run.

  Attributes:
    issued: samples that LoadGen has asked for; 0 while it prepares.
    done: samples answered.
    seconds: since the first sample was issued.
    finished: LoadGen has ended the run and written its logs.
    failure: why the run was given up; None if it was not.
  """

  issued: int = 0
  done: int = 0
  seconds: float = 0.0
  finished: bool = False
  failure: str | None = None


def send(status: RunStatus) -> None:
  """Writes a status to standard output in one piece."""
  line = f'{_MARK}{json.dumps(dataclasses.asdict(status))}\n'
  # Begins with a line end, as LoadGen may have left a line open.
  os.write(1, f'\n{line}'.encode())


def parse(line: str) -> RunStatus | None:
  """Reads a line; None if it is not a status."""
  if not line.startswith(_MARK):
    return None
  return RunStatus(**json.loads(line[len(_MARK) :]))
