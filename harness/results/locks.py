"""Keeps two jobs from one result: a lock file that names its holder.

The kernel frees a lock when its process ends, whatever ended it, so that no
crash leaves a result locked.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import time

from harness import errors

# `holder` takes a lock for a moment, only to see whether it is free.
_TRIES = 10
_PAUSE_SECS = 0.02


class Busy(errors.HarnessError):
  """Another job is at work on it."""


@contextlib.contextmanager
def held(path: str, what: str) -> Iterator[None]:
  """Holds a lock during a `with` block.

  Args:
    path: of the lock file, which exists only while somebody holds the lock.
    what: what is locked, for the message.

  Raises:
    Busy: another process, or another part of this one, holds it.
    OSError: the file cannot be made.
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
  """The process that holds a lock; None if nobody does, or nobody knows."""
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
  """The locked file's descriptor; None if it is locked."""
  for _ in range(_TRIES):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
      # Between the two calls its last holder may have removed the file.
      if os.path.samestat(os.fstat(descriptor), os.stat(path)):
        return descriptor
    except (BlockingIOError, FileNotFoundError):
      time.sleep(_PAUSE_SECS)
    os.close(descriptor)
  return None
