"""Chooses how many programs are prepared at a time, and in which order."""

from concurrent import futures
import os
import sys

from saxml_ext.engine import program_keys
from saxml_ext.engine import state

# The memory of this machine for each program that is compiled at a time. It is an
# estimate: a program of 32 layers was not measured.
_JOB_BYTES = 2**30

# The nice value of background threads. Decode steps run first. With this value,
# Linux still gives these threads a quarter of a core that is busy otherwise,
# because a request may wait for them.
_NICENESS = 5


def pool(background: bool = False) -> futures.ThreadPoolExecutor:
  """Returns threads that prepare programs, as many as cores and memory allow.

  Args:
    background: True if other threads of this process should run first.
  """
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  return futures.ThreadPoolExecutor(
    max(1, min(cores(), memory // _JOB_BYTES)),
    initializer=_lower_priority if background else None,
  )


def cores() -> int:
  """Returns the number of cores that this process may use."""
  return len(os.sched_getaffinity(0))


def urgency(key: state.Key) -> tuple[int, int]:
  """Returns the place of a program among those that are prepared behind.

  Prompts wait for the program of their length. Requests that are decoded
  together share any program that is wide enough, so the widest is first.
  """
  kinds = (program_keys.PrefillAndInsert, program_keys.PrefillChunk)
  if isinstance(key, kinds):
    return 0, 0
  if isinstance(key, program_keys.Decode):
    return 1, -key.width
  return 2, 0


def _lower_priority() -> None:
  """Lets other threads of this process run first, where that is possible."""
  if sys.platform == 'linux':  # Elsewhere, `nice` acts on the whole process.
    os.nice(_NICENESS)
