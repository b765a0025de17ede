"""Reads the kernel's description of a machine in /proc, /sys, /etc and /dev."""

import glob
import os


class MachineFiles:
  """Reads these files below a root. The root is / except in tests."""

  def __init__(self, root: str = '/'):
    self._root = root

  def path(self, path: str) -> str:
    """Returns the location of a file such as "/proc/cpuinfo" below the root."""
    return os.path.join(self._root, path.lstrip('/'))

  def text(self, path: str) -> str:
    """Returns a file's text without surrounding space.

    Returns:
      The text. It is "" if the file does not exist, if this user may not read
      it,
      or if its driver has no value.
    """
    try:
      with open(self.path(path), encoding='utf-8', errors='replace') as file:
        return file.read().strip()
    except OSError:
      return ''

  def number(self, path: str) -> int | None:
    """Returns the whole number in a file, or None without one."""
    text = self.text(path)
    return int(text) if text.lstrip('-').isdigit() else None

  def find(self, pattern: str) -> list[str]:
    """Returns the matching paths, sorted and without the root."""
    prefix = self._root.rstrip('/')
    return sorted(
      path.removeprefix(prefix) for path in glob.glob(self.path(pattern))
    )

  def exists(self, path: str) -> bool:
    return os.path.exists(self.path(path))

  def names(self, directory: str) -> list[str]:
    """Returns the names in a directory, sorted. A missing one has none."""
    path = self.path(directory)
    return sorted(os.listdir(path)) if os.path.isdir(path) else []
