"""Gives memory that is free in this process back to the machine."""

import ctypes
import functools
import gc


def give_back() -> None:
  """Returns what was freed to the operating system, as far as it can be.

  glibc keeps freed blocks of up to 32 MiB for later. After a checkpoint was
  read, or a program compiled, these can be as much as the weights themselves.
  It takes milliseconds; with another C library nothing happens.
  """
  trim = _malloc_trim()
  if trim is not None:
    trim(0)


def collect() -> None:
  """`give_back`, with what only reference cycles keep."""
  gc.collect()
  give_back()


def settle() -> None:
  """Takes all that is there now for permanent; call it once all is imported.

  `collect` holds up every thread while it looks at all objects. Those of the
  modules of a model server are a million that never go, a tenth of a second.
  """
  gc.collect()
  gc.freeze()


@functools.cache
def _malloc_trim():
  return getattr(ctypes.CDLL(None), 'malloc_trim', None)
