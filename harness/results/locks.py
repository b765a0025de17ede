"""Locks a result with a file, so that only one job writes it at a time.

The lock file contains the process id of the holder. The kernel releases the
lock when the process ends for any reason, so a crash leaves no result locked.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import time

from harness import errors

# Locking is retried because `holder` takes a lock briefly to test if it is
# free.
_TRIES = 10
_PAUSE_SECS = 0.02


class Busy(errors.HarnessError):
  """Another job holds the lock of this result."""


@contextlib.contextmanager
def held(path: str, what: str) -> Iterator[None]:
  """Holds a lock during a `with` block.

  Args:
    path: The path of the lock file. The file exists only while the lock is
      held.
    what: The locked object, for the error message.

  Raises:
    Busy: Another process, or another thread of this process, holds the lock.
    OSError: The file cannot be created.
  """
  os.makedirs(os.path.dirname(path), exist_ok=True)
  descriptor = _lock(path)
  if descriptor is None:
    pid = holder(path)
    raise Busy(
      f'{what} is being made by another job'
      f'{f" (process {pid})" if pid else ""}; wait for it, or stop it'
    )
  try:
    os.truncate(descriptor, 0)
    os.write(descriptor, f'{os.getpid()}\n'.encode())
    yield
  finally:
    os.unlink(path)
    os.close(descriptor)


def holder(path: str) -> int | None:
  """Returns the id of the process that holds a lock.

  Returns None if the lock is free or its holder is unknown.
  """
  try:
    with open(path, encoding='utf-8') as file:
      try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
      except BlockingIOError:
        text = file.read().strip()
        return int(text) if text.isdigit() else None
  except FileNotFoundError:
    pass
  return None


def _lock(path: str) -> int | None:
  """Returns the descriptor of the locked file, or None if it is locked."""
  for _ in range(_TRIES):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
      # The previous holder may have removed the file between the two calls.
      if os.path.samestat(os.fstat(descriptor), os.stat(path)):
        return descriptor
    except (BlockingIOError, FileNotFoundError):
      time.sleep(_PAUSE_SECS)
    os.close(descriptor)
  return None
