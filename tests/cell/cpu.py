"""CPU time of processes that are measured from outside."""

import psutil

from serve import children


def seconds(child: children.Child) -> float:
  """CPU seconds so far of a child, with a launcher's own children."""
  process = psutil.Process(child.process.pid)
  everyone = [process, *process.children(recursive=True)]
  times = [each.cpu_times() for each in everyone]
  return sum(t.user + t.system for t in times)
