"""Lets the tests of a process compile each XLA program once.

Every Runner and every layered model jits functions of its own, so that a test
that quantizes and scores several models compiles the same programs again and
again; with JAX' cache on disk all but the first find them there.
"""

import contextlib
import tempfile

import jax


@contextlib.contextmanager
def once():
  """In this block programs that were compiled before are loaded."""
  with tempfile.TemporaryDirectory() as directory:
    settings = {
      'jax_compilation_cache_dir': directory,
      'jax_persistent_cache_min_compile_time_secs': 0,
      'jax_persistent_cache_min_entry_size_bytes': -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
      for name, value in settings.items():
        jax.config.update(name, value)
      yield
    finally:
      for name, value in before.items():
        jax.config.update(name, value)
