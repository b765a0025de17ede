"""Runs a program where it may mount and make networks without being root.

All of it is inside Linux namespaces of the calling process: no privileges are
needed where the kernel lets users make those, and nothing is left behind.
"""

from collections.abc import Sequence
import os
import subprocess
import sys

_INSIDE = 'SAX_TEST_NAMESPACES'
_UNSHARE = ('unshare', '--user', '--map-root-user')


def enter(kinds: Sequence[str], probe: str) -> str:
  """Starts this program anew in namespaces of its own, unless it is there.

  Args:
    kinds: options of unshare(1), such as --mount.
    probe: shell commands that must work there.

  Returns:
    '' once inside, else why that is not possible here.
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
      f'`{" ".join(command)}` cannot be used here: {tried.stderr.strip()}; let'
      ' users make namespaces (sysctl kernel.unprivileged_userns_clone=1), or'
      ' run this as root'
    )
  os.environ[_INSIDE] = '1'
  os.execvp(_UNSHARE[0], [*command, sys.executable, *sys.orig_argv[1:]])
