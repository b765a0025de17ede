"""Restarts a program whenever it ends, as systemd does with Restart=always.

  python supervise.py GUARD STARTS PAUSE_SECS COMMAND...

STARTS is a file that gets a line with the process id for each start. GUARD is
//harness/systems:guard.py, which ends COMMAND if this program ends. This is a
program so that it can be started on another host. It uses only the standard
library. SIGTERM is sent to its process group: the program waits until COMMAND
has ended, and then ends.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time


def main(argv: list[str]) -> None:
  guard, starts, pause, *command = argv[1:]
  signals: list[int] = []
  signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
  guarded = [sys.executable, '-I', '-S', guard, str(os.getpid()), *command]
  while not signals:
    with subprocess.Popen(guarded) as process:
      with pathlib.Path(starts).open('a', encoding='ascii') as file:
        file.write(f'{process.pid}\n')
      code = process.wait()
    print(f'process {process.pid} ended with {code}', file=sys.stderr)
    sys.stderr.flush()
    if not signals:
      time.sleep(float(pause))


if __name__ == '__main__':
  main(sys.argv)
