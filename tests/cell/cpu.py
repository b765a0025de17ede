"""Reads the CPU time of child processes."""

import psutil

from serve import children


def seconds(child: children.Child) -> float:
  """Returns the CPU seconds of a child so far, with its own children."""
  process = psutil.Process(child.process.pid)
  everyone = [process, *process.children(recursive=True)]
  times = [p.cpu_times() for p in everyone]
  return sum(t.user + t.system for t in times)
