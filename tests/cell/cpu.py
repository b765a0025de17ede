"""CPU time of processes that are measured from outside."""

import psutil

from serve import children


def seconds(child: children.Child) -> float:
  """Returns the CPU seconds of a child so far, with a launcher's children."""
  process = psutil.Process(child.process.pid)
  everyone = [process, *process.children(recursive=True)]
  times = [each.cpu_times() for each in everyone]
  return sum(t.user + t.system for t in times)
