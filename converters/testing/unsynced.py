"""Turns off disk synchronization in tests.

The files of tests do not have to survive a power failure. A test that writes
dozens of small checkpoints would otherwise wait for the disk most of the time.
On a machine with a shared disk the wait is even longer.
"""

import contextlib
import os
from unittest import mock


def files() -> contextlib.AbstractContextManager:
  """Returns a context manager in which no write waits for the disk."""
  return mock.patch.object(os, 'fsync', lambda descriptor: None)
