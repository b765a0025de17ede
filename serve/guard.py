"""Becomes another program, which dies with the process that started it.

  python guard.py PARENT_PID COMMAND...

The kernel kills this process as soon as its parent is gone, for any reason.
This works only on Linux; on other systems, the parent must stop it. The setting
survives exec, so COMMAND does not need to know it. This is a program and not a
preexec_fn, because running Python between fork and exec is unsafe in a process
with gRPC threads. It uses only the standard library, because it runs with -I -S
to start fast.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def main(argv: list[str]) -> None:
  parent, command = int(argv[1]), argv[2:]
  if sys.platform == 'linux':
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
      error = ctypes.get_errno()
      raise OSError(error, f'prctl: {os.strerror(error)}')
  if os.getppid() != parent:
    raise SystemExit(f'{command[0]} was not started: its parent has ended')
  os.execvp(command[0], command)


if __name__ == '__main__':
  main(sys.argv)
