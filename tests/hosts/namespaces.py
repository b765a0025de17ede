"""Lets a program mount file systems and make networks without root rights.

Everything happens in Linux namespaces of the calling process. No privileges are
needed if the kernel lets users create namespaces, and nothing is left
afterwards.
"""

from collections.abc import Sequence
import os
import subprocess
import sys

_INSIDE = 'SAX_TEST_NAMESPACES'
_UNSHARE = ('unshare', '--user', '--map-root-user')


def enter(kinds: Sequence[str], probe: str) -> str:
  """Restarts this program in new namespaces, unless it already runs there.

  Args:
    kinds: The options of unshare(1), such as --mount.
    probe: The shell commands that must succeed there.

  Returns:
    '' inside the namespaces, or the reason why they are not available.
  """
  if os.environ.get(_INSIDE):
    return ''
  command = [*_UNSHARE, *kinds]
  try:
    tried = subprocess.run(
      [*command, 'sh', '-ec', probe], capture_output=True, text=True, timeout=60
    )
  except FileNotFoundError as e:
    return f'{e.filename} is not installed (util-linux)'
  if tried.returncode:
    return (
      f'`{" ".join(command)}` failed: {tried.stderr.strip()}. Let users create'
      ' namespaces (sysctl kernel.unprivileged_userns_clone=1), or run this as'
      ' root.'
    )
  os.environ[_INSIDE] = '1'
  os.execvp(_UNSHARE[0], [*command, sys.executable, *sys.orig_argv[1:]])
