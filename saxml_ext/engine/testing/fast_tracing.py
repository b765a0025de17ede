"""Reduces the time that JAX takes to trace programs in tests.

JAX creates many objects while it traces a program. Python's garbage collector
takes a sixth of the time of a test, unless it runs rarely and without the
objects of imported modules. A package's `tests` have this from run_tests.py.
Tests that are targets of their own call `install`.
"""

import gc


def install() -> None:
  """Makes garbage collection cheap."""
  gc.set_threshold(50_000, 20, 50)
  gc.freeze()
