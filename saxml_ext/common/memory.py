"""Returns freed memory of this process to the operating system."""

from collections.abc import Callable
import ctypes
import functools
import gc


def give_back() -> None:
  """Returns as much freed memory as possible to the operating system.

  glibc keeps freed blocks of up to 32 MiB for later use. After a checkpoint was
  read or a program compiled, these can be as large as the weights themselves.
  The call takes milliseconds. With another C library it does nothing.
  """
  trim = _malloc_trim()
  if trim is not None:
    trim(0)


def giving_back(report: Callable[[str], None]) -> Callable[[str], None]:
  """Returns a function that calls `report`, and then `give_back`."""

  def call(line: str) -> None:
    report(line)
    give_back()

  return call


def collect() -> None:
  """Frees objects in reference cycles, and calls `give_back`."""
  gc.collect()
  give_back()


def settle() -> None:
  """Marks all current objects as permanent.

  Call it once, after all imports. `collect` stops every thread while it visits
  all objects. The modules of a model server have a million objects that are
  never freed, and visiting them takes a tenth of a second.
  """
  gc.collect()
  gc.freeze()


@functools.cache
def _malloc_trim():
  return getattr(ctypes.CDLL(None), 'malloc_trim', None)
