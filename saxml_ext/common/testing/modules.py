"""Runs programs of this repository in separate processes, for tests."""

import os
import subprocess
import sys

from absl.testing import absltest


def start(
  test: absltest.TestCase,
  module: str,
  *flags: str,
  stderr: int = subprocess.PIPE,
  **variables: str,
) -> subprocess.Popen[str]:
  """Starts a server on a loopback address, and kills it after the test.

  Args:
    test: The test that uses the server.
    module: The module of the program, such as "saxml_ext.server.server".
    *flags: The flags of the program.
    stderr: The stderr of `subprocess.Popen`.
    **variables: The variables to add to this process's environment. JAX uses
      the CPU unless they name other platforms.
  """
  process = subprocess.Popen(
    [sys.executable, '-m', module, *flags],
    env=_environment(
      {'SAX_DEBUG_IPADDR': '1', 'JAX_PLATFORMS': 'cpu', **variables}
    ),
    stdout=subprocess.PIPE,
    stderr=stderr,
    text=True,
  )
  test.addCleanup(process.communicate)
  test.addCleanup(process.kill)
  return process


def run(
  module: str, *flags: str, **variables: str
) -> subprocess.CompletedProcess[str]:
  """Runs a program to its end, successful or not; see `start`."""
  return subprocess.run(
    [sys.executable, '-m', module, *flags],
    env=_environment(variables),
    capture_output=True,
    text=True,
    check=False,
  )


def _environment(variables: dict[str, str]) -> dict[str, str]:
  path = os.pathsep.join(filter(None, sys.path))
  return {**os.environ, 'PYTHONPATH': path, **variables}
