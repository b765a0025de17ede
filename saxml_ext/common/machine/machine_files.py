"""The files in which the kernel describes a machine: /proc, /sys, /etc, /dev."""

import glob
import os


class MachineFiles:
  """Reads them under a root, which is / but in tests."""

  def __init__(self, root: str = '/'):
    self._root = root

  def path(self, path: str) -> str:
    """Where a file that is called "/proc/cpuinfo" lies."""
    return os.path.join(self._root, path.lstrip('/'))

  def text(self, path: str) -> str:
    """A file's text without space around it.

    Returns:
      "" where there is no such file, or none that this user may read, or where
      the driver behind it has no answer: whoever describes a machine then says
      nothing of it.
    """
    try:
      with open(self.path(path), encoding='utf-8', errors='replace') as file:
        return file.read().strip()
    except OSError:
      return ''

  def number(self, path: str) -> int | None:
    """The whole number in a file; None where there is none."""
    text = self.text(path)
    return int(text) if text.lstrip('-').isdigit() else None

  def find(self, pattern: str) -> list[str]:
    """Paths that match, sorted; without the root, as `text` takes them."""
    prefix = self._root.rstrip('/')
    return sorted(
      path.removeprefix(prefix) for path in glob.glob(self.path(pattern))
    )

  def exists(self, path: str) -> bool:
    return os.path.exists(self.path(path))

  def names(self, directory: str) -> list[str]:
    """Names in a directory, sorted; none where there is no such directory."""
    path = self.path(directory)
    return sorted(os.listdir(path)) if os.path.isdir(path) else []
